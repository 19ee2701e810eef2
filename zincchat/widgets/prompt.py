"""The box where messages are typed."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import TextArea

from zincchat.chat.prompt_history import PromptHistory


class Prompt(TextArea, inherit_bindings=False):
    """A growing text box: Enter sends, Shift+Enter and Ctrl+J break the line, up and down walk the history."""

    # F6 is the app's: with a binding of its own here, the footer would name it first
    BINDINGS: ClassVar[list[BindingType]] = [
        binding for binding in TextArea.BINDINGS if isinstance(binding, Binding) and binding.key != "f6"
    ]

    class ScrollWanted(Message):
        """The user pressed Page Up (-1) or Page Down (1): the box is small, so the chat scrolls instead."""

        def __init__(self, pages: int) -> None:
            """Carry the direction."""
            self.pages = pages
            super().__init__()

    def __init__(self, sent: PromptHistory, submit: Callable[[str], bool]) -> None:
        """Start empty, with the messages ``sent`` before behind the arrow keys.

        Enter calls ``submit`` with the text as typed and clears the box where that returns True, unless
        it has put another text there. It is a call and no
        message, because a message would queue up behind keys already pressed: fast typists would find them changed
        the text that was sent, or send it twice.
        """
        super().__init__(
            id="prompt",
            compact=True,
            highlight_cursor_line=False,
            placeholder="Enter sends, Ctrl+J new line, /help",
        )
        self._sent, self._submit = sent, submit

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            text = self.text
            if self._submit(text) and self.text == text:
                self.clear()
        elif event.key in ("shift+enter", "ctrl+j"):
            event.stop()
            event.prevent_default()
            self.insert("\n")
        elif event.key in ("pageup", "pagedown"):
            event.stop()
            event.prevent_default()
            self.post_message(self.ScrollWanted(1 if event.key == "pagedown" else -1))
        elif event.key == "up" and self.cursor_at_first_line:
            self._recall(event, self._sent.older(self.text))
        elif event.key == "down" and self.cursor_at_last_line:
            self._recall(event, self._sent.newer())

    def _recall(self, event: events.Key, text: str | None) -> None:
        if text is not None:
            event.stop()
            event.prevent_default()
            self.replace_text(text)

    def replace_text(self, text: str) -> None:
        """Show ``text`` with the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)
