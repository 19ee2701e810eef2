"""A model's shape, read from GGUF metadata and checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import EngineError, shortened


@dataclass(frozen=True, slots=True)
class DeltaShape:
    """Gated DeltaNet layers: how many, and the sizes of one. Each value head has a state of its own."""

    layers: int
    key_heads: int
    value_heads: int
    head_size: int  # of keys and values alike
    conv_tokens: int  # tokens that the convolution sees, the newest among them
    interval: int = 4  # every so many layers one is of attention

    @property
    def conv_size(self) -> int:
        """Channels of the convolution: all queries, keys and values."""
        return (2 * self.key_heads + self.value_heads) * self.head_size

    @property
    def value_size(self) -> int:
        """Elements of all value heads."""
        return self.value_heads * self.head_size

    @property
    def conv_bytes(self) -> int:
        """A layer's convolution state: float32 (conv_tokens, conv_size)."""
        return 4 * self.conv_tokens * self.conv_size

    @property
    def state_bytes(self) -> int:
        """A layer's delta state: float32 (value_heads, head_size, head_size)."""
        return 4 * self.value_size * self.head_size


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
    trained_context: int
    windows_tokens: tuple[int, ...]  # of each attention layer: how many tokens it sees, its own among them; 0: all
    attention_scale: float  # what a product of query and key is multiplied by
    delta: DeltaShape | None = None
    # further activations of the architecture, one after another in memory: (name, elements a token)
    extra: tuple[tuple[str, int], ...] = ()
    further_kinds: tuple[str, ...] = ()  # kinds of nodes (engine.program.nodes) that not every model has

    @property
    def q_size(self) -> int:
        """Elements of all query heads."""
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        """Elements of all key (or value) heads."""
        return self.kv_heads * self.head_size

    @property
    def attention_layers(self) -> int:
        """Layers with a KV cache."""
        return len(self.windows_tokens)

    @property
    def kv_bytes_a_token(self) -> int:
        """Bytes of KV cache, float16, that a token of context takes in all layers."""
        return self.attention_layers * 2 * self.kv_size * 2

    @property
    def recurrent_bytes(self) -> int:
        """Bytes of recurrent state, whatever the context: 0 for a model of attention layers only."""
        return self.delta.layers * (self.delta.conv_bytes + self.delta.state_bytes) if self.delta else 0

    @property
    def recurrent_traffic_bytes(self) -> int:
        """Bytes of recurrent state that a token reads or writes: all of the delta state it does both with."""
        return self.recurrent_bytes + (self.delta.layers * self.delta.state_bytes if self.delta else 0)


class Metadata:
    """Checked access to an architecture's GGUF keys (``llama.block_count`` is ``integer("block_count")``)."""

    def __init__(self, file_name: str, values: Mapping[str, Any], architecture: str) -> None:
        self.file_name, self.values, self.architecture = file_name, values, architecture

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number; EngineError where it is missing without a default, not one, or out of range."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not low <= value <= high:
            raise EngineError(
                f"{self.file_name}: {self.architecture}.{key} is {shortened(value)}; expected {low} to {high}"
            )
        return int(value)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A real number; errors as for ``integer``."""
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float, np.number)) or not low <= value <= high:
            raise EngineError(
                f"{self.file_name}: {self.architecture}.{key} is {shortened(value)}; expected {low} to {high}"
            )
        return float(value)

    def _get(self, key: str, default: float | None) -> Any:
        value = self.values.get(f"{self.architecture}.{key}", default)
        if value is None:
            raise EngineError(f"{self.file_name}: the header lacks {self.architecture}.{key}")
        return value
