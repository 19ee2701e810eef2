"""One frozen record a token: the names used by ``run``, ``bench``, the trace and the export alike."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TokenTiming:
    """Where one token's time went. Times are microseconds; docs/measuring.md defines each figure.

    ``*_us`` of the six CPU steps is thread time, ``*_wall_us`` wall-clock time. GPU figures are None
    where this token did not measure them. ``measured_by`` is "clean" for a token whose command buffer
    carried two timestamps only, and "twin" for one that ran the stamped twins of its kernels, whose
    ``kernels_us``, ``bubbles_us`` and ``pieces_us`` are the only ones measured inside the kernels.
    ``bubbles_range_us`` stands in for ``bubbles_us`` where the device has no clock a kernel can read.
    """

    index: int  # within its reply, from 0; token 0 is sampled from the prefill's logits
    mode: str
    fusion: bool
    barriers: str
    rerecorded: bool  # a command buffer was recorded for this token
    dispatches: int
    barrier_count: int  # under barriers flags: how often kernels wait in memory
    # wall time since the previous token was handed out (token 0: since generate began); what came together shares it
    period_us: float
    exposed_cpu_us: float  # wall time of host work while nothing was queued on the GPU
    build_us: float
    record_us: float
    patch_us: float
    submit_us: float
    wait_us: float
    readback_us: float
    build_wall_us: float
    record_wall_us: float
    patch_wall_us: float
    submit_wall_us: float
    wait_wall_us: float
    readback_wall_us: float
    gpu_total_us: float | None
    gpu_idle_before_us: float | None
    kernels_us: float | None
    bubbles_us: float | None
    pieces_us: dict[str, float] | None  # keys: weights, kv, small, head
    measured_by: str  # "clean" or "twin"
    bubbles_range_us: tuple[float, float] | None = None
    passes: tuple[str, ...] = ()  # the fusion passes in use
    edges_us: float | None = None  # stamped tokens: between the two timestamps, before and after all kernels
    position: int | None = None  # the token's own place in the conversation, from 0: ``index`` begins anew each reply

    def to_json(self) -> dict[str, Any]:
        """The record as a JSON object with the names above."""
        return asdict(self)
