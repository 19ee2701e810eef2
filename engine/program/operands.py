"""What matrix ops work on: weights in device memory, and what is done to a product's input and result."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gguf.constants import GGMLQuantizationType

from engine.vulkan.memory import Slice


class Norm(NamedTuple):
    """An RMS norm of a matrix op's input: its weights, float32 (cols,), and the epsilon under the root."""

    weight: Slice
    eps: float


class Bias(NamedTuple):
    """What is added to a matrix op's result: float32 (rows,)."""

    vector: Slice


@dataclass(frozen=True, slots=True, eq=False)
class Weight:
    """A (rows, cols) matrix in device memory, as ``engine.weights.repack`` lays it out for ``layout(kernels)``.

    ``bytes`` counts what one pass over it reads. One too large for a piece of memory is in ``parts`` by rows, each of
    which begins at row ``first`` of the whole; the planes are then the first part's. ``plans`` belongs to
    ``engine.program.matrix``.
    """

    name: str
    type: GGMLQuantizationType
    rows: int
    cols: int
    quants: Slice
    scales: Slice
    bytes: int
    first: int = 0
    parts: tuple[Weight, ...] = ()
    plans: dict[Any, Any] = field(default_factory=dict, repr=False)


class Float16(NamedTuple):
    """What cooperative matrices take for x (tokens, cols): float16 in whole blocks of 32 columns, and a factor a token.

    ``values`` and ``factors``, float32 (tokens,), as shaders/to_float16.comp leaves them.
    """

    values: Slice
    factors: Slice


class Caches(NamedTuple):
    """Where ``qkv`` puts things: the RoPE table, a layer's KV cache for ``context`` tokens, the state.

    Without a table nothing is turned.
    """

    rope_table: Slice | None
    k_cache: Slice
    v_cache: Slice
    state: Slice
    heads: int
    kv_heads: int
    context: int
