"""The measurements beside the chat."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from zincchat.panel.view import PanelView
from zincchat.widgets.article import Article
from zincchat.widgets.figures import Figures
from zincchat.widgets.kernel_table import KernelTable
from zincchat.widgets.panel_header import PanelHeader
from zincchat.widgets.token_bars import TokenBars

ROWS_FOR_ALL = 55


class SidePanel(Vertical):
    """Header and bars, then the figures, or what the preset has in their place, or both where there is room."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__(id="side-panel")

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield PanelHeader()
        yield TokenBars()
        yield Figures()
        yield Article()
        yield KernelTable()

    def choose(self, preset: str, rows: int) -> None:
        """Decide what ``rows`` are for: "full" is the article beside this device, "kernels" their table."""
        self.query_one(Article).display = preset == "full"
        self.query_one(Article).alone = rows < ROWS_FOR_ALL
        self.query_one(KernelTable).display = preset == "kernels"
        self.query_one(Figures).display = preset not in ("full", "kernels") or rows >= ROWS_FOR_ALL

    def show(self, view: PanelView) -> None:
        """Draw ``view``."""
        self.query_one(PanelHeader).show(view)
        self.query_one(TokenBars).show(view)
        for widget in (self.query_one(Figures), self.query_one(Article), self.query_one(KernelTable)):
            if widget.display:
                widget.show(view)
