"""What a conversation leaves on the device from token to token: KV cache and recurrent state."""

from __future__ import annotations

from typing import NamedTuple

from engine.models.config import Geometry
from engine.vulkan.memory import Memory, Slice

_HALF_BYTES = 2


class AttentionCache(NamedTuple):
    """One attention layer's keys and values, float16 (kv_heads, context, head_size) each."""

    k: Slice
    v: Slice


class RecurrentState(NamedTuple):
    """One Gated DeltaNet layer's state after the newest token.

    ``conv``: float32 (conv_tokens, conv_size), the newest inputs of the convolution as a ring: that of the token at
    position p is row p % conv_tokens. So a token overwrites the one row that it does not read.
    ``delta``: float32 (value_heads, head_size, head_size): by key, then value dimension in kernels for software
    devices, by value, then key dimension in those for GPUs.
    The token at position 0 reads neither: a state needs no clearing.
    """

    conv: Slice
    delta: Slice


class Cache:
    """Of all layers: ``attention`` and ``recurrent`` hold one entry each of their kind, in the order of the layers.

    A KV cache can be rewound by feeding an earlier position again; a recurrent state cannot. ``marked`` is where a
    prompt chunk leaves its recurrent states after one of its tokens.
    """

    def __init__(self, memory: Memory, g: Geometry, context: int) -> None:
        """For ``context`` tokens. Raise EngineError where memory is out."""
        size = g.kv_size * context * _HALF_BYTES
        self.context, self.kv_heads = context, g.kv_heads
        self.attention = [AttentionCache(memory.allocate(size), memory.allocate(size)) for _ in g.windows_tokens]
        self.recurrent: list[RecurrentState] = []
        self.marked: list[RecurrentState] = []
        if g.delta is not None:
            conv, delta = g.delta.conv_bytes, g.delta.state_bytes
            self.recurrent, self.marked = (
                [RecurrentState(memory.allocate(conv), memory.allocate(delta)) for _ in range(g.delta.layers)]
                for _ in range(2)
            )
