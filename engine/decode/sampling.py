"""What the sampling kernel is told for each token."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from engine.errors import EngineError

_RANGES: tuple[tuple[str, type[Any], float, float], ...] = (
    ("temperature", Real, 0.0, 100.0),
    ("top_k", Integral, 0, 2**31 - 1),
    ("top_p", Real, 0.0, 1.0),
    ("min_p", Real, 0.0, 1.0),
    ("repeat_penalty", Real, 0.01, 100.0),
    ("seed", Integral, 0, 2**64 - 1),
)


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the next id is chosen from the logits.

    The order is: repetition penalty over the last 64 ids, top-k, top-p, min-p, temperature; ties go to
    the lowest id. ``temperature=0`` is argmax after the penalty. A seed fixes the ids: each draw is
    Philox 4x32-10 with key = seed and counter = (absolute position, draw).
    """

    temperature: float = 0.7
    top_k: int = 0  # 0: off
    top_p: float = 0.95  # 1: off
    min_p: float = 0.0  # 0: off
    repeat_penalty: float = 1.0  # 1: off
    seed: int = 0  # 64 bits

    def __post_init__(self) -> None:
        """Raise EngineError naming the first field that is out of range."""
        for name, kind, low, high in _RANGES:
            value = getattr(self, name)
            fits: bool = isinstance(value, kind)  # by itself: type checkers take a Real for what cannot be compared
            if not fits:
                raise EngineError(f"{name} is {value!r}; it must be a {'whole ' if kind is Integral else ''}number")
            if not low <= value <= high:
                raise EngineError(f"{name} is {value}; it must be between {low} and {high}")
