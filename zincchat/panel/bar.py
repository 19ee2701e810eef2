"""One token's period as a stacked bar of lettered cells on a fixed scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine import TokenTiming

LETTERS = {
    "R": "record",
    "S": "submit",
    "W": "other GPU idle",
    "G": "GPU busy",
    "K": "kernels",
    "B": "bubbles",
}
PERIOD_TICK = "┊"
CLIPPED = "›"
SCALES_MS = (0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


def parts(timing: TokenTiming) -> list[tuple[str, float]]:
    """Letter and microseconds of each part, in the order in which they happen; nothing is scaled or estimated.

    R and S are thread time, so that waiting for the interpreter lock never looks like recording; W is what
    the measured ``gpu_idle_before`` holds beyond them. What the host does beside the busy GPU takes no time of
    the token's: of R and S only what the GPU stood idle for is shown. G is the GPU's whole time between the
    token's two timestamps; a stamped token shows the K and B measured inside its kernels instead.
    """
    record_us = timing.build_us + timing.record_us
    submit_us = timing.patch_us + timing.submit_us
    if timing.mode == "overlap" and timing.gpu_total_us is not None:
        record_us -= timing.gpu_total_us  # the next token's recording begins when this one is submitted
    idle_us = timing.gpu_idle_before_us
    if idle_us is not None:
        submit_us = min(submit_us, idle_us)
        record_us = max(0.0, min(record_us, idle_us - submit_us))
    stack = [("R", record_us), ("S", submit_us)]
    if idle_us is not None:
        stack.append(("W", idle_us - record_us - submit_us))
    if timing.kernels_us is not None and timing.bubbles_us is not None:
        stack += [("K", timing.kernels_us), ("B", timing.bubbles_us)]
    elif timing.gpu_total_us is not None:
        stack.append(("G", timing.gpu_total_us))
    return [(letter, part_us) for letter, part_us in stack if part_us > 0]


def cells(stack: Sequence[tuple[str, float]], period_us: float, scale_us: float, width: int) -> str:
    """The bar as ``width`` letters at ``scale_us`` full width: parts, dots up to the period, its tick, blanks.

    Cell borders are rounded from the running sum, so rounding errors do not add up; a part under half a
    cell may vanish. What does not fit is cut off with a mark, never squeezed.
    """
    row = ""
    end_us = 0.0
    for letter, part_us in stack:
        end_us += part_us
        row += letter * (round(end_us / scale_us * width) - len(row))
    period_cells = round(period_us / scale_us * width)
    if period_cells >= len(row):
        row += "·" * (period_cells - len(row)) + PERIOD_TICK
    if len(row) > width + 1 or (len(row) == width + 1 and row[-1] != PERIOD_TICK):
        return row[: width - 1] + CLIPPED
    return row[:width].ljust(width)


def first_scale_ms(timing: TokenTiming, is_software: bool) -> float:
    """The axis to begin with: the first token's GPU time (or period) with room for recording, rounded up to a scale.

    Recording can outweigh the token on a GPU, and is a few percent of it on a software device.
    """
    return scale_at_least((1.3 if is_software else 2) * (timing.gpu_total_us or timing.period_us) / 1000)


def scale_at_least(wanted_ms: float) -> float:
    """The smallest scale that holds ``wanted_ms``."""
    return next((scale for scale in SCALES_MS if scale >= wanted_ms), SCALES_MS[-1])


def next_scale_ms(scale_ms: float) -> float:
    """The scale after this one; the largest is followed by the smallest."""
    return next((scale for scale in SCALES_MS if scale > scale_ms), SCALES_MS[0])


def axis(scale_ms: float, width: int) -> str:
    """Labels at 0, a quarter, half, three quarters and the full scale, right-aligned at the last."""
    row = [" "] * width
    for quarter in range(5):
        label = f"{scale_ms * quarter / 4:g}"
        column = min(round(quarter * width / 4), width - len(label))
        row[column : column + len(label)] = label
    return "".join(row)
