"""What the bubble meter found about one program, and how its terms add up. docs/measuring.md defines each figure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class BubbleReport:
    """Medians of interleaved runs of one decode program on scratch state. Times are GPU microseconds.

    What the kernels' own clock tells (``stamped_gpu_us``, ``kernels_us``, ``bubbles_us``, ``edges_us``,
    ``pieces_us``) is None where kernels have no clock: then the bubbles lie between ``lower_us`` and ``upper_us``.
    """

    position: int
    passes: tuple[str, ...]
    barriers: str
    dispatches: int
    barrier_count: int
    clean_gpu_us: float
    unordered_gpu_us: float  # the clean program without its barriers
    null_gpu_us: float  # the null twin: all dispatches and barriers, kernels that return at once
    null_unordered_gpu_us: float  # the null twin without barriers
    null_chain_gpu_us: float  # of the null twin one workgroup for each barrier
    empty_gpu_us: float  # one workgroup of it
    queued_gap_us: float
    stamped_gpu_us: float | None = None
    kernels_us: float | None = None
    bubbles_us: float | None = None
    edges_us: float | None = None  # between the two timestamps, before the first kernel and after the last
    pieces_us: dict[str, float] | None = None

    @property
    def lower_us(self) -> float:
        """At least this long are the bubbles: each barrier drains the GPU and starts it again."""
        return max(self.null_chain_gpu_us - self.empty_gpu_us, 0.0)

    @property
    def upper_us(self) -> float:
        """At most this long: what barriers add, and all that launching may leave idle without them."""
        launching_us = max(self.null_unordered_gpu_us - self.empty_gpu_us, 0.0)
        return max(self.clean_gpu_us - self.unordered_gpu_us + launching_us, 0.0)

    @property
    def within_brackets(self) -> bool | None:
        """Whether the stamped bubbles lie between the bounds; None where kernels have no clock."""
        return None if self.bubbles_us is None else self.lower_us <= self.bubbles_us <= self.upper_us

    @property
    def instrument_cost_fraction(self) -> float | None:
        """How much longer the stamped program takes than the clean one, as a fraction of the clean one."""
        return None if self.stamped_gpu_us is None else self.stamped_gpu_us / self.clean_gpu_us - 1

    @property
    def unexplained_us(self) -> float | None:
        """The clean program's GPU time less kernels, bubbles and edges; negative where the instrument costs time."""
        if self.kernels_us is None or self.bubbles_us is None or self.edges_us is None:
            return None
        return unexplained_us(self.clean_gpu_us, 0.0, self.kernels_us, self.bubbles_us, self.edges_us)

    @property
    def unexplained_fraction(self) -> float | None:
        """``unexplained_us`` as a fraction of the clean program's GPU time, signed."""
        return None if self.unexplained_us is None else self.unexplained_us / self.clean_gpu_us

    def to_json(self) -> dict[str, Any]:
        """Fields and properties as a JSON object."""
        derived = (
            "lower_us", "upper_us", "within_brackets", "instrument_cost_fraction", "unexplained_us",
            "unexplained_fraction",
        )  # fmt: skip
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}


def unexplained_us(
    period_us: float, gpu_idle_before_us: float, kernels_us: float, bubbles_us: float, edges_us: float
) -> float:
    """What of a clean token's period no measured term accounts for; negative where they exceed it.

    ``period_us`` and ``gpu_idle_before_us`` are medians of clean tokens, the others of stamped ones.
    """
    return period_us - (gpu_idle_before_us + kernels_us + bubbles_us + edges_us)


def starved_us(gpu_idle_before_us: float, queued_gap_us: float) -> float:
    """The part of a token's ``gpu_idle_before_us`` that queueing it earlier would have saved."""
    return max(gpu_idle_before_us - queued_gap_us, 0.0)
