"""What the bubble meter found about one program, and how its terms add up. docs/measuring.md defines each figure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BubbleReport:
    """Medians of interleaved runs of one decode program on scratch state. Times are GPU microseconds.

    What the kernels' own clock tells (``stamped_gpu_us``, ``kernels_us``, ``bubbles_us``, ``edges_us``,
    ``pieces_us``, ``stamps_us``) is None where kernels have no clock: then the bubbles lie between ``lower_us`` and
    ``upper_us``. Under the policy flags no upper bound is known: ``upper_us`` and its error are None.
    """

    position: int
    passes: tuple[str, ...]
    barriers: str
    dispatches: int
    barrier_count: int
    clean_gpu_us: float
    filled_gpu_us: float  # the clean program, with a workgroup for each processor of a software device at least
    repeated_gpu_us: float  # the same, every workgroup once more
    unordered_gpu_us: float  # the clean program without its barriers
    null_gpu_us: float  # the null twin: all dispatches and barriers, kernels that return at once
    empty_chain_gpu_us: float  # one empty kernel, and another behind each of as many barriers
    empty_gpu_us: float  # one empty kernel
    lower_us: float  # at least this long are the bubbles: each barrier drains the GPU and starts it again
    upper_us: float | None  # at most this long: what of the clean program is not the least that its kernels take
    lower_error_us: float  # half the 95% interval of the median, as for the two below
    upper_error_us: float | None
    queued_gap_us: float
    stamped_gpu_us: float | None = None
    kernels_us: float | None = None
    bubbles_us: float | None = None
    bubbles_error_us: float | None = None
    edges_us: float | None = None  # between the two timestamps, before the first kernel and after the last
    pieces_us: dict[str, float] | None = None
    stamps_us: float | None = None  # what stamps add: stamped less neighbouring clean GPU time
    stamps_error_us: float | None = None
    instrument_cost_fraction: float | None = None  # ``stamps_us`` over the clean GPU time

    @property
    def above_lower(self) -> bool | None:
        """Whether the stamped bubbles are at least the lower bound, give or take the medians' 95% intervals.

        None where kernels have no clock.
        """
        if self.bubbles_us is None or self.bubbles_error_us is None:
            return None
        return self.lower_us - self.lower_error_us - self.bubbles_error_us <= self.bubbles_us

    @property
    def within_brackets(self) -> bool | None:
        """Whether the stamped bubbles lie between both bounds, give or take the medians' 95% intervals.

        None where kernels have no clock, and where there is no upper bound.
        """
        if self.bubbles_us is None or self.bubbles_error_us is None:
            return None
        if self.upper_us is None or self.upper_error_us is None:
            return None
        most = self.upper_us + self.upper_error_us + self.bubbles_error_us
        return bool(self.above_lower) and self.bubbles_us <= most

    def to_json(self) -> dict[str, Any]:
        """Fields and properties as a JSON object."""
        return {**asdict(self), "above_lower": self.above_lower, "within_brackets": self.within_brackets}


def unexplained_us(
    period_us: float, gpu_idle_before_us: float, kernels_us: float, bubbles_us: float, edges_us: float
) -> float:
    """What of a clean token's period no measured term accounts for; negative where they exceed it.

    ``period_us`` and ``gpu_idle_before_us`` are of clean tokens, the others of stamped ones.
    """
    return period_us - (gpu_idle_before_us + kernels_us + bubbles_us + edges_us)


def starved_us(gpu_idle_before_us: float, queued_gap_us: float) -> float:
    """The part of a token's ``gpu_idle_before_us`` that queueing it earlier would have saved."""
    return max(gpu_idle_before_us - queued_gap_us, 0.0)
