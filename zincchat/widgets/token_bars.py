"""The history of tokens: one bar a token, the newest at the top, on an axis that only a key rescales."""

from __future__ import annotations

from rich.text import Text
from textual.widget import Widget

from zincchat.panel.bar import axis, cells, parts
from zincchat.panel.token_history import Settings, ShownToken
from zincchat.panel.units import ms
from zincchat.panel.view import PanelView
from zincchat.widgets.palette import coloured

LABEL_WIDTH = 7
VALUE_WIDTH = 8
STAMP = "◇"


class TokenBars(Widget):
    """Stacked bars with marks where a setting changed or another reply began."""

    def __init__(self) -> None:
        """Begin without tokens."""
        super().__init__()
        self.view = PanelView()

    def show(self, view: PanelView) -> None:
        """Draw ``view``."""
        self.view = view
        self.refresh()

    def render(self) -> Text:
        """The axis and as many bars as there are rows."""
        width = self.content_size.width - LABEL_WIDTH - VALUE_WIDTH
        text = Text(no_wrap=True, overflow="crop")
        if self.view.scale_ms is None or width < 8:
            return text.append("a bar a token appears here as the reply comes", "dim")
        text.append(f"{'token':<{LABEL_WIDTH}}{axis(self.view.scale_ms, width)}{'ms':>{VALUE_WIDTH}}", "dim")
        rows = self.content_size.height - 1
        newer: ShownToken | None = None
        for token in reversed(self.view.history.tokens):
            if newer is not None and (mark := _mark(token, newer)) and rows > 0:
                text.append(f"\n  ── {mark} ".ljust(self.content_size.width + 1, "─"), "yellow")
                rows -= 1
            if rows <= 0:
                break
            text.append("\n")
            self._append_bar(text, token, width)
            rows -= 1
            newer = token
        return text

    def _append_bar(self, text: Text, token: ShownToken, width: int) -> None:
        timing = token.timing
        stamp = " " if timing.measured_by == "clean" else STAMP
        text.append(f"{token.position:>5}{stamp} ")
        bar = cells(parts(timing), timing.period_us, (self.view.scale_ms or 1) * 1000, width)
        text.append_text(coloured(bar))
        text.append(f"{ms(timing.period_us):>{VALUE_WIDTH}}")


def _mark(older: ShownToken, newer: ShownToken) -> str:
    before, after = Settings.of(older.timing), Settings.of(newer.timing)
    if before != after:
        return f"{before.change_to(after)} at token {newer.position}"
    return f"reply {newer.reply}" if older.reply != newer.reply else ""
