"""The last tokens as two lanes of lettered cells, CPU above GPU, on one time axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from zincchat.panel.bar import axis

if TYPE_CHECKING:
    from engine import TokenTrace

STEPS = {"build": "R", "record": "R", "patch": "S", "submit": "S", "wait": "·", "readback": "I"}
MEANINGS = {
    "R": "record",
    "S": "submit",
    "·": "CPU waits",
    "I": "read back",
    "G": "GPU busy",
    "K": "kernels",
    "B": "bubbles",
}
TOKEN_START = "┃"
STAMP = "◇"
WINDOW_SCALES = 2  # the lanes hold twice the time of a bar's axis, so that several tokens are seen

_Times = npt.NDArray[np.float64]


class TracedToken(NamedTuple):
    """A token's place in the context and its timeline."""

    position: int
    trace: TokenTrace


@dataclass(frozen=True, slots=True)
class Lanes:
    """Rows of equal width. ``deviation_us`` None: the driver offers no common axis for CPU and GPU."""

    axis: str
    cpu: str
    gpu: str
    tokens: str
    deviation_us: float | None


def lanes(tokens: Sequence[TracedToken], window_ms: float, width: int) -> Lanes:
    """The newest of ``tokens`` (oldest first, at least one) that fit into ``window_ms``, drawn ``width`` cells wide.

    The axis begins where the first of them begins. A cell shows what took most of its time; a submit takes one at
    least, so that none vanishes. Of a stamped token the cells with B add up to its bubbles, each close to where
    they were; what begins before the first token or ends after the window is cut off.
    """
    starts_ns = _starts_ns(tokens)
    window_ns = window_ms * 1e6
    end_ns = tokens[-1].trace.laps[-1].end_ns
    first = next((i for i, start_ns in enumerate(starts_ns) if end_ns - start_ns <= window_ns), len(tokens) - 1)
    edges_ns = starts_ns[first] + np.linspace(0, window_ns, width + 1)
    gpu, labels = _gpu_lane(tokens, edges_ns)
    deviations = [token.trace.deviation_ns for token in tokens[first:]]
    known = [deviation for deviation in deviations if deviation is not None]
    return Lanes(
        axis(window_ms, width),
        # all tokens: in a pipeline, steps of earlier ones stand between those of the newest
        _cpu_lane([token.trace for token in tokens], edges_ns),
        gpu,
        labels,
        max(known) / 1000 if len(known) == len(deviations) else None,
    )


def _starts_ns(tokens: Sequence[TracedToken]) -> list[float]:
    """A token begins where the one before it was handed out, or with its first step if that is later.

    Where the GPU runs ahead of the host, it begins with the GPU's work.
    """
    first = tokens[0].trace.laps[0].start_ns
    host = [first, *(max(a.trace.laps[-1].end_ns, b.trace.laps[0].start_ns) for a, b in pairwise(tokens))]
    return [min(host_ns, token.trace.gpu_start_ns) for host_ns, token in zip(host, tokens, strict=True)]


def _cpu_lane(traces: Sequence[TokenTrace], edges_ns: _Times) -> str:
    width, cell_ns = len(edges_ns) - 1, float(edges_ns[1] - edges_ns[0])
    laps = [lap for trace in traces for lap in trace.laps if lap.end_ns > edges_ns[0]]
    letters = list(dict.fromkeys(STEPS.values()))
    time_ns = np.stack([
        _covered_ns(((lap.start_ns, lap.end_ns) for lap in laps if STEPS[lap.step] == letter), edges_ns)
        for letter in letters
    ])  # fmt: skip
    busy = time_ns.sum(axis=0) >= cell_ns / 2
    row = [letters[most] if some else " " for most, some in zip(time_ns.argmax(axis=0), busy, strict=True)]
    for lap in laps:
        cell = int((lap.start_ns - edges_ns[0]) // cell_ns)
        if lap.step == "submit" and 0 <= cell < width:
            row[cell] = STEPS["submit"]
    return "".join(row)


def _gpu_lane(tokens: Sequence[TracedToken], edges_ns: _Times) -> tuple[str, str]:
    """The GPU's row, and the row with each token's number where its work starts."""
    width, cell_ns = len(edges_ns) - 1, float(edges_ns[1] - edges_ns[0])
    row, labels = [" "] * width, ""
    for position, trace in tokens:
        start, end = (round((ns - edges_ns[0]) / cell_ns) for ns in (trace.gpu_start_ns, trace.gpu_end_ns))
        end = max(end, start + 1)
        if start >= width or end <= 0:
            continue
        letters = _kernel_cells(trace, edges_ns) if trace.stamped is not None else ["G"] * width
        shown = slice(max(start, 0), min(end, width))
        row[shown] = letters[shown]
        if start < 0:
            continue
        row[start] = TOKEN_START
        label = f"{position}{STAMP if trace.stamped is not None else ''} "
        if len(labels) <= start and start + len(label) <= width:
            labels = labels.ljust(start) + label
    return "".join(row), labels.ljust(width)


def _kernel_cells(trace: TokenTrace, edges_ns: _Times) -> list[str]:
    """K or B for each cell between the first kernel's start and the last one's end, G elsewhere."""
    cell_ns = float(edges_ns[1] - edges_ns[0])
    spans_ns = trace.kernel_spans_ns
    within_ns = _covered_ns([(spans_ns[:, 0].min(), spans_ns[:, 1].max())], edges_ns)
    bubbles_ns = within_ns - _covered_ns(spans_ns, edges_ns)
    cells, owed_ns = [], 0.0
    for inside_ns, bubble_ns in zip(within_ns.tolist(), bubbles_ns.tolist(), strict=True):
        owed_ns += bubble_ns
        is_bubble = owed_ns >= cell_ns / 2
        owed_ns -= cell_ns * is_bubble
        cells.append("B" if is_bubble else "K" if inside_ns >= cell_ns / 2 else "G")
    return cells


def _covered_ns(spans_ns: Iterable[Sequence[float] | _Times], edges_ns: _Times) -> _Times:
    """How much of each cell is covered by the union of the spans."""
    spans = np.array(list(spans_ns), dtype=np.float64).reshape(-1, 2)
    if not len(spans):
        return np.zeros(len(edges_ns) - 1)
    spans = spans[np.argsort(spans[:, 0], kind="stable")]
    ends = np.maximum.accumulate(spans[:, 1])
    starts = np.maximum(spans[:, 0], np.concatenate((spans[:1, 0], ends[:-1])))
    until = np.cumsum(np.maximum(ends - starts, 0))
    points = np.stack((np.minimum(starts, ends), ends), axis=1).ravel()
    values = np.stack((np.concatenate(([0.0], until[:-1])), until), axis=1).ravel()
    return np.diff(np.interp(edges_ns, points, values))
