"""RoPE frequencies, and what GGUF's keys say of them."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.models.config import Metadata


def frequencies(theta: float, rotated: int) -> npt.NDArray[np.float64]:
    """Radians a position for each pair of ``rotated`` dimensions: theta^(-2i / rotated), float64 (rotated / 2,)."""
    found: npt.NDArray[np.float64] = theta ** (-np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    return found


def stated_frequencies(
    meta: Metadata, rotated: int, key: str = "rope.freq_base", default_theta: float = 1e4
) -> npt.NDArray[np.float64]:
    """The same with the theta that ``key`` states. EngineError where it makes no sense."""
    return frequencies(meta.number(key, 1.0, 1e12, default_theta), rotated)


def scaled_frequencies(meta: Metadata, rotated: int, default_theta: float = 1e4) -> npt.NDArray[np.float64]:
    """Those of the model's own theta, with linear scaling where the file states it. Errors as of the parts."""
    return stated_frequencies(meta, rotated, default_theta=default_theta) / linear_factor(meta)


def linear_factor(meta: Metadata) -> float:
    """What linear scaling divides each frequency by; 1 without. EngineError for another kind of scaling."""
    kind = meta.values.get(f"{meta.architecture}.rope.scaling.type", "linear")
    if not isinstance(kind, str) or kind not in ("none", "linear"):
        raise EngineError(
            f"{meta.file_name}: RoPE scaling {str(kind)[:40]!r} is not supported; there is linear and Llama 3's"
        )
    older = meta.number("rope.scale_linear", 0.0, 1e6, 0.0)
    factor = meta.number("rope.scaling.factor", 0.0, 1e6, older)
    return factor if kind == "linear" and factor > 0 else 1.0
