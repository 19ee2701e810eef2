"""The end of a text that still grows."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static


class Tail(Static):
    """Plain text; the screen is laid out again only where its number of lines changed."""

    def __init__(self) -> None:
        """Start empty, taking no room."""
        super().__init__("", classes="tail", markup=False)
        self.display = False

    def show(self, text: str, width: int) -> None:
        """Draw ``text``, wrapped at ``width`` cells."""
        content = Content(text)
        height = content.get_height(self.styles.get_rules(), width) if text else 0
        self.update(content, layout=False)
        if self.styles.height is None or height != self.styles.height.value:
            self.styles.height = height
            self.display = bool(text)
