"""The conversation as it scrolls by."""

from __future__ import annotations

from textual.containers import VerticalScroll
from textual.widgets import Static

from zincchat.widgets.reply import Reply
from zincchat.widgets.thoughts import Thoughts


class Transcript(VerticalScroll, can_focus=False):
    """Questions, replies and notes; follows the newest line until the user scrolls away."""

    def __init__(self) -> None:
        """Begin empty, with thoughts folded."""
        super().__init__()
        self._thoughts_open = False

    def on_mount(self) -> None:
        """Stick to the bottom."""
        self.anchor()

    def add_question(self, text: str) -> None:
        """Show what the user asked."""
        self.mount(Static("you", classes="you", markup=False), Static(text, classes="question", markup=False))
        self.anchor()

    def add_reply(self, speaker: str) -> Reply:
        """Open a reply and return it for feeding."""
        reply = Reply(speaker, self._thoughts_open)
        self.mount(reply)
        return reply

    def add_note(self, text: str, before: Reply) -> None:
        """Show one line of the app's own above a reply."""
        self.mount(Static(text, classes="note", markup=False), before=before)

    def show_device(self, text: str) -> None:
        """Say at the very top what answers here."""
        self.mount(Static(text, classes="device", markup=False), before=0 if self.children else None)

    def toggle_thoughts(self) -> bool:
        """Unfold the thoughts of every reply and of those to come, or fold them; False where there are none yet."""
        thoughts = [widget for widget in self.query(Thoughts) if widget.tokens]
        if not thoughts:
            return False
        self._thoughts_open = not thoughts[-1].is_open
        for widget in self.query(Thoughts):
            widget.set_open(self._thoughts_open)
        return True

    def scroll_page(self, pages: int) -> None:
        """Scroll one page up (-1) or down (1); the bottom is followed again once it is reached."""
        self.release_anchor()
        self.scroll_relative(y=pages * (self.size.height - 1), animate=False)

    def clear(self) -> None:
        """Remove all but the line about the device."""
        self.query_children().exclude(".device").remove()

    def remove_last_reply(self) -> None:
        """Remove the newest reply, of which there is one."""
        self.query(Reply).last().remove()

    def remove_last_question(self) -> None:
        """Remove the newest question, which has gone back to the prompt or is replaced."""
        for selector in (".you", ".question"):
            self.query(selector).last().remove()
