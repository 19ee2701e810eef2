"""RoPE frequencies."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def frequencies(theta: float, rotated: int) -> npt.NDArray[np.float64]:
    """Radians a position for each pair of ``rotated`` dimensions: theta^(-2i / rotated), float64 (rotated / 2,)."""
    found: npt.NDArray[np.float64] = theta ** (-np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    return found
