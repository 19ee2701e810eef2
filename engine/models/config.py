"""A model's shape, read from GGUF metadata and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import EngineError


@dataclass(frozen=True, slots=True)
class Geometry:
    """The sizes every part of the engine needs; counts of float32 elements unless the name says otherwise."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    rotated: int  # dimensions of a head that RoPE turns
    rope_halves: bool  # RoPE pairs (i, i + rotated / 2) rather than (2i, 2i + 1)
    ffn: int
    vocab: int
    eps: float
    rope_theta: float
    trained_context: int

    @property
    def q_size(self) -> int:
        """Elements of all query heads."""
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements of all key (or value) heads."""
        return self.kv_heads * self.head_size


class Metadata:
    """Checked access to an architecture's GGUF keys (``llama.block_count`` is ``integer("block_count")``)."""

    def __init__(self, file_name: str, values: Mapping[str, Any], architecture: str) -> None:
        self.file_name, self.values, self.architecture = file_name, values, architecture

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number; EngineError where it is missing without a default, not one, or out of range."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            raise EngineError(
                f"{self.file_name}: {self.architecture}.{key} is {_short(value)}; expected {low} to {high}"
            )
        return int(value)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A real number; errors as for ``integer``."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not low <= value <= high:
            raise EngineError(
                f"{self.file_name}: {self.architecture}.{key} is {_short(value)}; expected {low} to {high}"
            )
        return float(value)

    def _get(self, key: str, default: float | None) -> Any:
        value = self.values.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise EngineError(f"{self.file_name}: the header lacks {self.architecture}.{key}")
        return value


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) < 40 else text[:37] + "..."
