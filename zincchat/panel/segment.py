"""The live switches, and the figures of the tokens that ran under one setting of them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zincchat.panel.cpu_time import host_work_us, scheduler_wait_us
from zincchat.panel.statistics import median

if TYPE_CHECKING:
    from engine import TokenTiming

SEGMENT_TOKENS = 1024
SETTLING_TOKENS = 2  # the first under a setting: a recording is made or fetched, a pipeline fills

_LONGEST_CHANGE = 49  # columns, so that it fits the panel behind "A/B "


@dataclass(frozen=True, slots=True)
class Settings:
    """The three live switches a token ran under."""

    mode: str
    fusion: bool
    barriers: str

    @classmethod
    def of(cls, timing: TokenTiming) -> Settings:
        """The settings of one record."""
        return cls(timing.mode, timing.fusion, timing.barriers)

    def change_to(self, after: Settings) -> str:
        """What differs, as "rerecord → reuse" or "fused → unfused · barriers every → needed".

        Where that is too long for the panel, as "pipelined·fused·every → reuse·unfused·needed".
        """
        pairs = [pair for pair in zip(self.words(), after.words(), strict=True) if pair[0] != pair[1]]
        text = " · ".join(f"{old} → {new.removeprefix('barriers ')}" for old, new in pairs)
        if len(text) <= _LONGEST_CHANGE:
            return text
        sides = zip(*pairs, strict=True)
        return " → ".join("·".join(word.removeprefix("barriers ") for word in side) for side in sides)

    def words(self) -> tuple[str, str, str]:
        """The settings as the header shows them."""
        return self.mode, "fused" if self.fusion else "unfused", f"barriers {self.barriers}"


@dataclass(slots=True)
class Segment:
    """The tokens since a setting changed, at most the last 1,024; times in microseconds.

    Token and CPU figures come from clean tokens only, kernels and bubbles from stamped ones.
    """

    settings: Settings
    token_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    cpu_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    scheduler_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    gpu_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    gpu_idle_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    kernels_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    bubbles_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    bubbles_low_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    bubbles_high_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    stamped_gpu_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    record_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))
    fed_positions: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))  # of those of token_us
    settled_us: deque[float] = field(default_factory=lambda: deque(maxlen=SEGMENT_TOKENS))  # token_us, less the first
    clean_tokens: int = 0
    stamped_tokens: int = 0
    rerecorded: int = 0
    since_switch: int = 0  # tokens

    def add(self, timing: TokenTiming) -> None:
        """Take in one record."""
        self.since_switch += 1
        if timing.rerecorded:
            self.rerecorded += 1
            self.record_us.append(timing.record_us)
        if timing.bubbles_range_us is not None:
            self.bubbles_low_us.append(timing.bubbles_range_us[0])
            self.bubbles_high_us.append(timing.bubbles_range_us[1])
        if timing.measured_by != "clean":
            self.stamped_tokens += 1
            _append(self.kernels_us, timing.kernels_us)
            _append(self.bubbles_us, timing.bubbles_us)
            _append(self.stamped_gpu_us, timing.gpu_total_us)
            return
        self.clean_tokens += 1
        self.token_us.append(timing.period_us)
        if timing.position is not None:
            self.fed_positions.append(timing.position - 1)
        if self.since_switch > SETTLING_TOKENS:
            self.settled_us.append(timing.period_us)
        self.cpu_us.append(host_work_us(timing))
        self.scheduler_us.append(scheduler_wait_us(timing))
        _append(self.gpu_us, timing.gpu_total_us)
        _append(self.gpu_idle_us, timing.gpu_idle_before_us)

    def switched(self) -> None:
        """Tokens of other settings came between: the next ones pay for a switch again."""
        self.since_switch = 0

    @property
    def stamp_cost(self) -> float | None:
        """How much longer the GPU takes for a stamped token than for a clean one, as a fraction of the latter."""
        if not self.stamped_gpu_us or not self.gpu_us:
            return None
        return median(self.stamped_gpu_us) / median(self.gpu_us) - 1


def _append(values: deque[float], value: float | None) -> None:
    if value is not None:
        values.append(value)
