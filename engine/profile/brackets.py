"""Bounds on a token's bubbles for a device whose kernels cannot read a clock.

Below: the null twin, the same pipelines told to return at once, which leaves launching and synchronising.
Above: the token with its barriers minus the same token without them. All three run on the real buffers with
the state saved and put back; they write the KV cache only at the position that the next token writes anyway.
"""

from __future__ import annotations

import statistics

from engine.decode.program import DecodeProgram
from engine.profile.scratch_run import ScratchRun
from engine.vulkan.pipelines import Kernels

_REPEATS = 5
_RETURN_AT_ONCE = bytes(8)  # the null twin's stamp address


class Brackets:
    """Measures (lower_us, upper_us) of a program's bubbles; nothing may be in flight."""

    def __init__(self, scratch: ScratchRun, kernels: Kernels) -> None:
        self._scratch, self._kernels = scratch, kernels

    def measure(self, program: DecodeProgram) -> tuple[float, float]:
        """Medians of five runs each, microseconds; the lower bound never exceeds the upper."""
        null = [op.with_kernel(self._kernels.null_twin(op.kernel), _RETURN_AT_ONCE + op.push) for op in program.ops]
        free = [False] * len(program.ops)
        lower, clean, unordered = (
            statistics.median(self._scratch.gpu_us(ops, barriers) for _ in range(_REPEATS))
            for ops, barriers in ((null, program.barriers), (program.ops, program.barriers), (program.ops, free))
        )
        upper = max(clean - unordered, 0.0)
        return min(lower, upper), max(lower, upper)
