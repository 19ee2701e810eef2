"""The timeline under the chat: what CPU and GPU did during the last tokens."""

from __future__ import annotations

from zincchat.panel.timeline import MEANINGS, WINDOW_SCALES, lanes
from zincchat.widgets.line_view import Line, LineView
from zincchat.widgets.palette import coloured

ROWS = 6  # as in the style sheet, its border included
LABEL_WIDTH = 7
UNIT = " ms"
MIN_WIDTH = 32  # below that the labels of the axis touch


class Timeline(LineView):
    """Two lanes on one axis, which only a token or a key changes."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__(id="timeline")

    def lines(self) -> list[Line]:
        """Axis, CPU, GPU, the tokens' numbers, and what the letters mean."""
        view = self.view
        width = self.content_size.width - LABEL_WIDTH - len(UNIT)
        if not view.traces or view.scale_ms is None or width < MIN_WIDTH:
            return [[("what CPU and GPU do during a token appears here with the next one", "dim")]]
        drawn = lanes(tuple(view.traces), view.scale_ms * WINDOW_SCALES, width)
        return [
            [(f"{'':<{LABEL_WIDTH}}{drawn.axis}{UNIT}", "dim")],
            [(f"{'CPU':<{LABEL_WIDTH}}", ""), *coloured(drawn.cpu)],
            [(f"{'GPU':<{LABEL_WIDTH}}", ""), *coloured(drawn.gpu)],
            [(f"{'token':<{LABEL_WIDTH}}{drawn.tokens}", "dim")],
            _legend(drawn.deviation_us, drawn.cpu + drawn.gpu),
        ]


def _legend(deviation_us: float | None, cells: str) -> Line:
    """The letters in the lanes and how well these fit together; a warning comes first, since the end may be cut off."""
    letters: Line = []
    for letter, meaning in MEANINGS.items():
        if letter in cells:
            letters += [*coloured(letter), (f" {meaning}  ", "dim")]
    indent = (" " * LABEL_WIDTH, "")
    if deviation_us is None:
        return [
            indent,
            ("no calibrated clock: the GPU's lane is only known to lie after its submit  ", "yellow"),
            *letters,
        ]
    return [indent, *letters, (f"CPU and GPU ± {deviation_us:.2g} us", "dim")]
