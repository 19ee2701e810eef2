"""The measurements beside the chat."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from zincchat.panel.view import PanelView
from zincchat.widgets.figures import Figures
from zincchat.widgets.panel_header import PanelHeader
from zincchat.widgets.token_bars import TokenBars


class SidePanel(Vertical):
    """Header, bars and figures."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__(id="side-panel")

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield PanelHeader()
        yield TokenBars()
        yield Figures()

    def show(self, view: PanelView) -> None:
        """Draw ``view``."""
        self.query_one(PanelHeader).show(view)
        self.query_one(TokenBars).show(view)
        self.query_one(Figures).show(view)
