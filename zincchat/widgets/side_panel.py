"""The measurements beside the chat."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from zincchat.panel.view import PanelView
from zincchat.widgets.article import Article
from zincchat.widgets.figures import Figures
from zincchat.widgets.panel_header import PanelHeader
from zincchat.widgets.token_bars import TokenBars

ROWS_FOR_ALL = 53


class SidePanel(Vertical):
    """Header and bars, then the figures, or the article beside this device, or both where there is room."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__(id="side-panel")

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield PanelHeader()
        yield TokenBars()
        yield Figures()
        yield Article()

    def choose(self, article: bool, rows: int) -> None:
        """Decide what ``rows`` are for."""
        self.query_one(Article).display = article
        self.query_one(Article).alone = rows < ROWS_FOR_ALL
        self.query_one(Figures).display = not article or rows >= ROWS_FOR_ALL

    def show(self, view: PanelView) -> None:
        """Draw ``view``."""
        self.query_one(PanelHeader).show(view)
        self.query_one(TokenBars).show(view)
        for widget in (self.query_one(Figures), self.query_one(Article)):
            if widget.display:
                widget.show(view)
