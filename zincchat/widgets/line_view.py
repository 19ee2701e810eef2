"""A widget that draws styled lines fast enough to be redrawn a dozen times a second."""

from __future__ import annotations

from abc import abstractmethod
from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from zincchat.panel.view import PanelView

Line = list[tuple[str, str]]
"""Pieces of text with the name of their style, from left to right."""

_style = lru_cache(maxsize=256)(Style.parse)


class LineView(Widget):
    """Draws ``lines()`` of a PanelView. Strips are built directly: Rich's text layout takes ten times as long."""

    def __init__(self, id: str | None = None) -> None:
        """Begin with nothing known."""
        super().__init__(id=id)
        self.view = PanelView()
        self._strips: list[Strip] | None = None
        self._drawn_size = Size()

    @abstractmethod
    def lines(self) -> list[Line]:
        """What to draw, at most ``content_size.height`` lines of ``content_size.width`` cells; the rest is cut off."""

    def show(self, view: PanelView) -> None:
        """Draw ``view``."""
        self.view = view
        self._strips = None
        self.refresh()

    @property
    def plain(self) -> str:
        """The text as drawn, without its styles."""
        return "\n".join(strip.text.rstrip() for strip in self._draw())

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """One row a line, where the styles leave the height open."""
        return len(self.lines())

    def render_line(self, y: int) -> Strip:
        """Row ``y`` of the widget."""
        strips = self._draw()
        strip = strips[y] if y < len(strips) else Strip.blank(self.content_size.width)
        return strip.apply_style(self.rich_style)

    def _draw(self) -> list[Strip]:
        """All rows, made once for each ``show`` and size: a resized widget is drawn before it hears of it."""
        if self._strips is None or self._drawn_size != self.content_size:
            self._drawn_size = self.content_size
            width = self.content_size.width
            self._strips = [
                Strip([Segment(text, _style(style)) for text, style in line]).crop_extend(0, width, None)
                for line in self.lines()
            ]
        return self._strips
