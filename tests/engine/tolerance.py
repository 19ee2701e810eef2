"""How far an engine's logits may be from a float64 forward pass."""

from __future__ import annotations

from engine import Engine
from engine.program.matrix_kernels import matrix_size


def tolerance(engine: Engine) -> float:
    """Relative to the largest logit. Now and then a float16 key or value rounds the other way than in float64.

    Cooperative matrices round a prompt's weights to float16 too.
    """
    return 1e-2 if matrix_size(engine._runtime._kernels) else 2e-3
