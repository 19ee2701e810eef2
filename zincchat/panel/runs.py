"""What tokens cost under each setting that ran in this session, whatever order they came in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine import RunMedians, RunSettings
from zincchat.panel.statistics import median

if TYPE_CHECKING:
    from engine import TokenTiming

KEPT_TOKENS = 64
STAMPED_TOKENS_NEEDED = 3  # the median of fewer is at the mercy of one that was disturbed


def _kept() -> deque[float]:
    return deque(maxlen=KEPT_TOKENS)


@dataclass(slots=True)
class _Run:
    """The newest tokens of one setting: period and idle of clean ones, the rest of stamped ones; microseconds."""

    period_us: deque[float] = field(default_factory=_kept)
    gpu_idle_before_us: deque[float] = field(default_factory=_kept)
    bubbles_us: deque[float] = field(default_factory=_kept)
    edges_us: deque[float] = field(default_factory=_kept)
    pieces_us: dict[str, deque[float]] = field(default_factory=dict)

    def add(self, timing: TokenTiming) -> None:
        """Take in one record."""
        if timing.measured_by == "clean":
            self.period_us.append(timing.period_us)
            if timing.gpu_idle_before_us is not None:
                self.gpu_idle_before_us.append(timing.gpu_idle_before_us)
        elif timing.bubbles_us is not None and timing.edges_us is not None and timing.pieces_us is not None:
            self.bubbles_us.append(timing.bubbles_us)
            self.edges_us.append(timing.edges_us)
            for piece, piece_us in timing.pieces_us.items():
                self.pieces_us.setdefault(piece, _kept()).append(piece_us)

    def medians(self) -> RunMedians | None:
        """The medians; None without a clean token."""
        if not self.period_us or not self.gpu_idle_before_us:
            return None
        period_us, idle_us = median(self.period_us), median(self.gpu_idle_before_us)
        if len(self.bubbles_us) < STAMPED_TOKENS_NEEDED:
            return RunMedians(period_us, idle_us)
        pieces_us = {piece: median(values) for piece, values in self.pieces_us.items()}
        return RunMedians(period_us, idle_us, median(self.bubbles_us), median(self.edges_us), pieces_us)


class Runs:
    """The newest 64 decode tokens of each setting."""

    def __init__(self) -> None:
        """Begin with none."""
        self._runs: dict[RunSettings, _Run] = {}

    def add(self, timing: TokenTiming) -> None:
        """Take in one record; a reply's token 0 comes from the prefill and does not count."""
        if timing.index > 0:
            self._runs.setdefault(_settings(timing), _Run()).add(timing)

    def replace(self, timings: Iterable[TokenTiming]) -> None:
        """Take in a measurement of one setting in place of the clean tokens known of it."""
        timings = list(timings)
        for settings in {_settings(timing) for timing in timings} & self._runs.keys():
            self._runs[settings].period_us.clear()
            self._runs[settings].gpu_idle_before_us.clear()
        for timing in timings:
            self.add(timing)

    def medians(self) -> dict[RunSettings, RunMedians]:
        """The medians of every setting that has any."""
        found = ((settings, run.medians()) for settings, run in self._runs.items())
        return {settings: medians for settings, medians in found if medians is not None}


def _settings(timing: TokenTiming) -> RunSettings:
    return RunSettings(timing.mode, timing.barriers, timing.fusion)
