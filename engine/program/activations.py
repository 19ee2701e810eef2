"""The buffers a program's activations live in, as seen by one decode token or by a prompt chunk."""

from __future__ import annotations

from itertools import combinations

from engine.models.config import Geometry
from engine.vulkan.memory import Memory, Slice

_FLOAT_BYTES = 4
_ALIGNMENT = 16  # of addresses that kernels take


class Activations:
    """Views of ``tokens`` rows each into one set of buffers; all float32, row-major.

    ``x`` (hidden) is the residual stream, ``last`` its last row, ``normed`` (hidden) a norm's output,
    ``q``, ``k``, ``v`` one after another, ``attended`` (heads * head_size), ``projected`` (hidden),
    ``gate``, ``up``, ``activated`` (ffn), ``logits`` (vocab); ``extra`` are the architecture's own, by name.
    """

    def __init__(self, buffers: ActivationBuffers, tokens: int) -> None:
        g = buffers.geometry
        row = tokens * _FLOAT_BYTES
        self.tokens = tokens
        self.x = buffers.x.part(0, row * g.hidden)
        self.last = self.x if tokens == 1 else buffers.x.part((row - _FLOAT_BYTES) * g.hidden, _FLOAT_BYTES * g.hidden)
        self.normed = buffers.normed.part(0, row * g.hidden)
        self.last_normed = buffers.normed.part(0, _FLOAT_BYTES * g.hidden)
        self.qkv = buffers.qkv.part(0, row * (g.q_size + 2 * g.kv_size))
        self.q = self.qkv.part(0, row * g.q_size)
        self.k = self.qkv.part(row * g.q_size, row * g.kv_size)
        self.v = self.qkv.part(row * (g.q_size + g.kv_size), row * g.kv_size)
        self.attended = buffers.attended.part(0, row * g.q_size)
        self.projected = buffers.projected.part(0, row * g.hidden)
        self.gate = buffers.gate.part(0, row * g.ffn)
        self.up = buffers.up.part(0, row * g.ffn)
        self.activated = buffers.activated.part(0, row * g.ffn)
        self.logits = buffers.logits
        self.extra, start = {}, 0
        for name, size in g.extra:
            self.extra[name] = buffers.extra.part(start, row * size)
            start += _aligned(row * size)
        # what a stacked projection writes: the slices that follow one another in memory
        self.spans: dict[tuple[int, int], Slice] = {}
        for whole, parts in ((self.qkv, [self.q, self.k, self.v]), (buffers.extra, list(self.extra.values()))):
            for first, end in combinations(range(len(parts) + 1), 2):
                start, last = parts[first].offset - whole.offset, parts[end - 1]
                span = whole.part(start, last.offset + last.size - parts[first].offset)
                self.spans[id(parts[first]), end - first] = span


class ActivationBuffers:
    """The memory behind Activations, large enough for ``max_tokens`` rows."""

    def __init__(self, memory: Memory, geometry: Geometry, max_tokens: int) -> None:
        g = self.geometry = geometry
        row = max_tokens * _FLOAT_BYTES
        self.x = memory.allocate(row * g.hidden)
        self.normed = memory.allocate(row * g.hidden)
        self.qkv = memory.allocate(row * (g.q_size + 2 * g.kv_size))
        self.attended = memory.allocate(row * g.q_size)
        self.projected = memory.allocate(row * g.hidden)
        self.gate = memory.allocate(row * g.ffn)
        self.up = memory.allocate(row * g.ffn)
        self.activated = memory.allocate(row * g.ffn)
        self.logits = memory.allocate(_FLOAT_BYTES * g.vocab)
        self.extra = memory.allocate(sum(_aligned(row * size) for _, size in g.extra) or _ALIGNMENT)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
