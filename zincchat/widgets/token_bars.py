"""The history of tokens: one bar a token, the newest at the top, on an axis that only a key rescales."""

from __future__ import annotations

from zincchat.panel.bar import axis, cells, parts
from zincchat.panel.segment import Settings
from zincchat.panel.token_history import ShownToken
from zincchat.panel.units import ms
from zincchat.widgets.line_view import Line, LineView
from zincchat.widgets.palette import coloured

LABEL_WIDTH = 7
VALUE_WIDTH = 8
_RULE = "  ── "
STAMP = "◇"


class TokenBars(LineView):
    """Stacked bars with marks where a setting changed or another reply began."""

    def lines(self) -> list[Line]:
        """The axis and as many bars as there are rows."""
        width = self.content_size.width - LABEL_WIDTH - VALUE_WIDTH
        scale_ms = self.view.scale_ms
        if scale_ms is None or width < 8:
            return [[("one bar a token appears here, the newest at the top", "dim")]]
        lines: list[Line] = [[(f"{'token':<{LABEL_WIDTH}}{axis(scale_ms, width)}{'ms':>{VALUE_WIDTH}}", "dim")]]
        newer: ShownToken | None = None
        for token in reversed(self.view.history.tokens):
            if len(lines) >= self.content_size.height:
                break
            if newer is not None and (mark := _mark(token, newer, self.content_size.width - len(_RULE) - 1)):
                lines.append([(f"{_RULE}{mark} ".ljust(self.content_size.width, "─"), "yellow")])
            lines.append(_bar(token, scale_ms, width))
            newer = token
        return lines


def _bar(token: ShownToken, scale_ms: float, width: int) -> Line:
    timing = token.timing
    stamp = " " if timing.measured_by == "clean" else STAMP
    bar = coloured(cells(parts(timing), timing.period_us, scale_ms * 1000, width))
    return [
        (f"{token.position:>5}{stamp}{token.side or ' '}", ""),
        *bar,
        (f"{ms(timing.period_us):>{VALUE_WIDTH}}", ""),
    ]


def _mark(older: ShownToken, newer: ShownToken, room: int) -> str:
    before, after = Settings.of(older.timing), Settings.of(newer.timing)
    if before != after and not (older.side and newer.side):
        change = before.change_to(after)
        place = f" at token {newer.position}"  # beside the bar above, too
        return change + place if len(change + place) <= room else change
    return f"reply {newer.reply}" if older.reply != newer.reply else ""
