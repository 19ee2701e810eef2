"""What an A/B of two settings in a chat has found so far: the median ratio of neighbouring turns."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zincchat.alternation import TURN_TOKENS
from zincchat.panel.segment import SETTLING_TOKENS, Segment, Settings
from zincchat.panel.statistics import median, median_interval

if TYPE_CHECKING:
    from engine import TokenTiming

LEAST_TOKENS = 3  # of a turn, whose median would say little of fewer
KEPT_PAIRS = 256


@dataclass(frozen=True, slots=True)
class Compared:
    """Medians over turns of a token's period, us; ``ratio`` is the median of a over b, pair by pair.

    ``interval`` holds the true ratio with 95%; None for fewer pairs than that takes.
    """

    words: str
    a_us: float
    b_us: float
    ratio: float
    interval: tuple[float, float] | None
    pairs: int


class Comparison:
    """Takes in tokens in order. Each side has a segment of its own, for the table and the line of changes."""

    def __init__(self, a: Settings, b: Settings) -> None:
        """Begin with nothing known of either."""
        self.a, self.b = Segment(a), Segment(b)
        self._pairs: deque[tuple[float, float]] = deque(maxlen=KEPT_PAIRS)  # periods of a and b
        self._turn: Segment | None = None
        self._seen = 0  # tokens of this turn
        self._periods_us: list[float] = []
        self._waiting: tuple[Segment, float] | None = None  # a turn whose other half is still to come

    def side(self, settings: Settings) -> Segment | None:
        """The segment of ``settings``; None where they are neither side's."""
        return next((segment for segment in (self.a, self.b) if segment.settings == settings), None)

    def letter(self, settings: Settings) -> str:
        """``a`` or ``b``."""
        return "a" if settings == self.a.settings else "b"

    def add(self, timing: TokenTiming) -> None:
        """Take in a token of either side."""
        segment = self.side(Settings.of(timing))
        assert segment is not None
        if segment is not self._turn:
            segment.switched()
        segment.add(timing)
        if segment is not self._turn or self._seen == TURN_TOKENS:
            self._end_turn()
            self._turn = segment
        self._seen += 1
        if self._seen > SETTLING_TOKENS and timing.measured_by == "clean":
            self._periods_us.append(timing.period_us)

    def interrupted(self) -> None:
        """A reply ended: what follows is another turn, and no neighbour of this one."""
        self._end_turn()
        self._turn = self._waiting = None

    def result(self) -> Compared | None:
        """What the pairs say; None before the first."""
        if not self._pairs:
            return None
        ratios = [a_us / b_us for a_us, b_us in self._pairs]
        return Compared(
            self.a.settings.change_to(self.b.settings),
            median([a_us for a_us, _ in self._pairs]),
            median([b_us for _, b_us in self._pairs]),
            median(ratios),
            median_interval(ratios),
            len(ratios),
        )

    def _end_turn(self) -> None:
        periods_us, turn = self._periods_us, self._turn
        self._periods_us, self._seen = [], 0
        if turn is None or len(periods_us) < LEAST_TOKENS:
            return
        turn_us = median(periods_us)
        if self._waiting is not None and self._waiting[0] is not turn:
            other_us = self._waiting[1]
            self._pairs.append((turn_us, other_us) if turn is self.a else (other_us, turn_us))
            self._waiting = None
        else:
            self._waiting = (turn, turn_us)
