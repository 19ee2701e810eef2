"""Editing the system prompt."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Static, TextArea


class SystemPromptScreen(ModalScreen[str | None]):
    """Returns the new text, or None where the user gave up."""

    CSS_PATH = "system_prompt.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "keep", "Keep", key_display="Ctrl+S"),
        Binding("escape", "give_up", "Give up", key_display="Esc"),
    ]

    def __init__(self, text: str) -> None:
        """Start from the present ``text``."""
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        """A title and a text box."""
        with Vertical(id="system-prompt"):
            yield Static("System prompt: Ctrl+S keeps it from the next message on, Esc leaves it as it was")
            yield TextArea(self._text)

    def action_keep(self) -> None:
        """Return the text."""
        self.dismiss(self.query_one(TextArea).text.strip())

    def action_give_up(self) -> None:
        """Return nothing."""
        self.dismiss(None)
