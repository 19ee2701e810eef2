"""What tokens cost under each setting that ran in this session, whatever order they came in."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine import RunMedians, RunSettings
from zincchat.panel.statistics import RATIO_TOKENS, median

if TYPE_CHECKING:
    from engine import TokenTiming

KEPT_TOKENS = 64
LIKE_CONTEXT_TOKENS = 256  # a token gets slower with its context: further apart, a ratio would be of that too
STAMPED_TOKENS_NEEDED = 3  # the median of fewer is at the mercy of one that was disturbed


@dataclass(slots=True)
class _Run:
    """The newest tokens of one setting, clean and stamped in one window: parts and period are of the same stretch.

    ``measured`` are those of a measurement, which count until the chat has a window of its own.
    """

    tokens: deque[TokenTiming] = field(default_factory=lambda: deque(maxlen=KEPT_TOKENS))
    measured: list[TokenTiming] = field(default_factory=list)

    def shown(self) -> Sequence[TokenTiming]:
        """The tokens that count."""
        return self.measured if self.measured and not _enough(self.tokens) else self.tokens

    def medians(self) -> RunMedians | None:
        """Period and idle time of clean tokens, the rest of stamped ones; None without a clean token."""
        tokens = self.shown()
        clean, stamped = [token for token in tokens if token.measured_by == "clean"], _stamped(tokens)
        idle_us = [token.gpu_idle_before_us for token in clean if token.gpu_idle_before_us is not None]
        if not idle_us:
            return None
        period = median([token.period_us for token in clean]), median(idle_us)
        if not stamped or not _enough(tokens):
            return RunMedians(*period)
        pieces_us: dict[str, list[float]] = {}
        for token in stamped:
            for piece, piece_us in (token.pieces_us or {}).items():
                pieces_us.setdefault(piece, []).append(piece_us)
        return RunMedians(
            *period,
            median([token.bubbles_us or 0.0 for token in stamped]),
            median([token.edges_us or 0.0 for token in stamped]),
            {piece: median(values) for piece, values in pieces_us.items()},
        )


class Runs:
    """The newest 64 decode tokens of each setting."""

    def __init__(self) -> None:
        """Begin with none."""
        self._runs: dict[RunSettings, _Run] = {}

    def add(self, timing: TokenTiming) -> None:
        """Take in one record; a reply's token 0 comes from the prefill and does not count."""
        if timing.index > 0:
            self._runs.setdefault(_settings(timing), _Run()).tokens.append(timing)

    def replace(self, timings: Iterable[TokenTiming]) -> None:
        """Take in a measurement of settings in place of all that is known of them."""
        found: dict[RunSettings, _Run] = {}
        for timing in timings:
            if timing.index > 0:
                found.setdefault(_settings(timing), _Run()).measured.append(timing)
        self._runs.update(found)

    def medians(self) -> dict[RunSettings, RunMedians]:
        """The medians of every setting that has any."""
        found = ((settings, run.medians()) for settings, run in self._runs.items())
        return {settings: medians for settings, medians in found if medians is not None}

    def stamped_tokens(self, settings: RunSettings) -> int:
        """How many stamped tokens the parts of a setting are medians of."""
        run = self._runs.get(settings)
        return len(_stamped(run.shown())) if run is not None else 0

    def comparable(self, a: RunSettings, b: RunSettings) -> bool:
        """Whether 8 clean tokens or more of each count, all within 256 tokens of one context, as a measurement's do."""
        positions: list[int] = []
        for settings in (a, b):
            run = self._runs.get(settings)
            clean = [token for token in run.shown() if token.measured_by == "clean"] if run is not None else []
            if len(clean) < RATIO_TOKENS:
                return False
            positions += [token.position for token in clean if token.position is not None]
        return bool(positions) and max(positions) - min(positions) <= LIKE_CONTEXT_TOKENS


def _stamped(tokens: Iterable[TokenTiming]) -> list[TokenTiming]:
    """Those of a stamped token that its clocks could tell the parts of."""
    return [
        token
        for token in tokens
        if token.measured_by != "clean" and None not in (token.bubbles_us, token.edges_us, token.pieces_us)
    ]


def _enough(tokens: Sequence[TokenTiming]) -> bool:
    """Whether the parts are to be shown: from three stamped tokens on, or what a full window holds of them."""
    return len(_stamped(tokens)) >= STAMPED_TOKENS_NEEDED or len(tokens) == KEPT_TOKENS


def _settings(timing: TokenTiming) -> RunSettings:
    return RunSettings(timing.mode, timing.barriers, timing.fusion)
