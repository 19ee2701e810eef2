"""The buffers a program's activations live in, as seen by one decode token or by a prompt chunk."""

from __future__ import annotations

from engine.models.config import Geometry
from engine.vulkan.memory import Memory

_FLOAT_BYTES = 4


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
        self.extra = {name: buffers.extra[name].part(0, row * size) for name, size in g.extra}
        # what a stacked projection writes: q and the slices that follow it
        self.spans = {
            (id(self.q), 2): self.qkv.part(0, row * (g.q_size + g.kv_size)),
            (id(self.q), 3): self.qkv,
        }


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
        self.extra = {name: memory.allocate(row * size) for name, size in g.extra}
