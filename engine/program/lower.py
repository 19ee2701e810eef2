"""Nodes to ops: which kernel each runs on this device, over how many workgroups, at what cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from engine.cache import Cache
from engine.models.config import Geometry
from engine.program.attend_division import (
    attend_division,
    attended_ranges,
    most_parts,
    sees_many,
    shared_division,
    sharing_workgroups,
)
from engine.program.delta import DeltaLowering
from engine.program.fusion import PASSES, ROW_KERNEL_PASSES
from engine.program.matrix import embed, embed_decode, gate_up, matmul, matvec, qkv, to_float16
from engine.program.matrix_kernels import MOST_GROUPS, Groups, matrix_size
from engine.program.nodes import Node
from engine.program.op import Attention, Op
from engine.program.operands import Bias, Caches, Float16, Norm
from engine.program.small_kernels import ALONE, MATRICES, ONE_RANGE, prompt_tiles, rope_defines, small_kernels
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Kernel, KernelSet

_FLOAT_BYTES = 4
_READ_ONLY_X = ("matvec", "matvec_add", "bias")  # nodes of projections, which do not write what they multiply by


class Buffers(NamedTuple):
    """What ops touch besides weights and activations."""

    state: Slice
    ids: Slice  # uint32 ids of a prompt chunk
    rope_tables: tuple[Slice, ...]  # float32 (context, rotated / 2, 2) each: cos and sin
    cache: Cache
    parts: Slice  # float32 (splits, heads, head_size)
    sums: Slice  # float32 (splits, heads, 2)
    arrivals: Slice  # uint32 (heads,), zero between tokens
    float16: Float16  # of a prompt chunk, what cooperative matrices multiply by


class Lowering:
    """Turns nodes into ops for ``tokens`` rows: 1 with ``context_bucket`` for decode, else a prompt chunk.

    ``attend`` covers ``context_bucket`` tokens of KV cache in decode; its workgroups beyond the state's
    position return at once. Where these are many, rows are divided as ``far`` says, if there is such a set.
    """

    def __init__(
        self,
        kernels: KernelSet,
        geometry: Geometry,
        buffers: Buffers,
        context: int,
        tokens: int = 1,
        prefill: bool = False,
    ) -> None:
        self.kernels, self.g, self.b = kernels, geometry, buffers
        self.context, self.tokens, self.prefill = context, tokens, prefill
        self.context_bucket = context
        self.far: KernelSet | None = None
        self._small = {
            kind: kernels.get(choice.name, choice.defines)
            for kind, choice in small_kernels(kernels, geometry, prefill).items()
        }
        offered = ROW_KERNEL_PASSES if kernels.device.row_kernels else PASSES
        self.passes = tuple(name for name in offered if name != "delta" or geometry.delta)  # there are kernels for
        self._rope_defines = rope_defines(geometry)
        self._scale = geometry.attention_scale
        self._matrices = matrix_size(kernels) if prefill else None
        self._in_float16: Slice | None = None  # what Buffers.float16 holds, as long as nothing writes it
        self._lowered: dict[str, Callable[[Node], Op]] = {
            "norm": self._norm,
            "norm_add": self._norm,
            "bias": self._bias,
            "add": self._add,
            "head_norm": self._head_norm,
            "rope": self._rope,
            "store": self._store,
            "rope_store": self._rope_store,
            "norm_rope_store": self._norm_rope_store,
            "silu_mul": self._gated,
            "gelu_mul": self._gated,
            "gate_up": self._gate_up,
            "gate_up_gelu": self._gate_up,
            "qkv_rope": self._qkv_rope,
        }
        self._lowered_to_several: dict[str, Callable[[Node], list[Op]]] = {
            "attend": self._attend,
            "attend_merged": self._attend,
            "attend_gated": self._attend,
            "embed": self._embed,
            "head": self._head,
            "matvec": self._matvec,
            "matvec_add": self._matvec,
        }
        cache = buffers.cache
        states = (buffers.state, cache.recurrent, cache.marked)
        self._lowered |= DeltaLowering(kernels, geometry, *states, tokens, prefill).lowered

    def lower(self, nodes: list[Node]) -> list[Op]:
        """One op a node; two for decode attention (ranges, then their merge), one for each part of a weight.

        Where cooperative matrices need an input in float16, one more before its first reader.
        """
        lowered, several = self._lowered, self._lowered_to_several
        ops: list[Op] = []
        self._in_float16 = None
        for node in nodes:
            if node.kind not in _READ_ONLY_X:
                self._in_float16 = None
            if node.kind in several:
                ops += several[node.kind](node)
            else:
                ops.append(lowered[node.kind](node))
        return ops

    @property
    def one_range_tokens(self) -> int:
        """Tokens of context up to which no workgroup of decode attention has more than one range, where a kernel of
        its own is built for that; else 0.
        """
        one = next((kernel for kind, kernel in self._small.items() if kind.endswith(ONE_RANGE)), None)
        if one is None:
            return 0
        heads, tokens = int(one.defines["HEADS"]), int(one.defines["SPLIT"])
        return most_parts(self.g.heads, self.g.kv_heads, heads, None) * tokens

    @property
    def _row_kernels(self) -> KernelSet:
        return self.kernels if self.far is None or not sees_many(self.context_bucket) else self.far

    def _embed(self, node: Node) -> list[Op]:
        table, y, *scales = node.args
        scale = scales[0] if scales else 1.0
        ops: list[Op] = []
        for part in table.parts or (table,):
            name = node.name if part is table else f"{node.name}.{len(ops)}"
            if self.prefill:
                ids, tokens = self.b.ids, self.tokens
                ops.append(embed(self.kernels, part, ids, y, tokens, scale=scale, table=table, name=name))
            else:
                ops.append(embed_decode(self.kernels, part, self.b.state, y, scale=scale, table=table, name=name))
        return ops

    def _norm(self, node: Node) -> Op:
        x, weight, y = node.args
        g = self.g
        rows = x.size // (_FLOAT_BYTES * g.hidden)
        return Op(
            node.name,
            self._small[node.kind],
            (x, weight, y),
            (g.hidden, 1.0 / g.hidden, g.eps),
            (rows, 1, 1),
            "small",
            x.size * 2,
        )

    def _matvec(self, node: Node) -> list[Op]:
        weight, x, y, *more = node.args
        norm, bias = _norm_and_bias(more)
        add = node.kind == "matvec_add"
        if not self.prefill:
            return [matvec(self._row_kernels, weight, x, y, add=add, norm=norm, bias=bias, name=node.name)]
        if self._matrices is None:
            return [matmul(self.kernels, weight, x, y, self.tokens, add=add, bias=bias, name=node.name)]
        ops = [matmul(self.kernels, weight, self.b.float16, y, self.tokens, add=add, bias=bias, name=node.name)]
        if self._in_float16 is not x:
            self._in_float16 = x
            made = to_float16(self.kernels, x, self.b.float16, self.tokens, weight.cols, name=node.name + ".float16")
            ops.insert(0, made)
        return ops

    def _head(self, node: Node) -> list[Op]:
        weight, x, y, *norms = node.args
        norm = norms[0] if norms else None
        if not weight.parts:
            return [matvec(self.kernels, weight, x, y, norm=norm, piece="head", name=node.name)]
        ops: list[Op] = []
        for part in weight.parts:
            rows = y.part(_FLOAT_BYTES * part.first, _FLOAT_BYTES * part.rows)
            ops.append(matvec(self.kernels, part, x, rows, norm=norm, piece="head", name=f"{node.name}.{len(ops)}"))
        return ops

    def _gate_up(self, node: Node) -> Op:
        gate, up, x, y, *norm = node.args
        gelu = node.kind == "gate_up_gelu"
        return gate_up(self._row_kernels, gate, up, x, y, gelu=gelu, norm=norm[0] if norm else None, name=node.name)

    def _qkv_rope(self, node: Node) -> Op:
        weight, x, q, cache, table, *more = node.args
        norm, bias = _norm_and_bias(more)
        b, g = self.b, self.g
        k, v = b.cache.attention[cache]
        turning = None if table is None else b.rope_tables[table]
        caches = Caches(turning, k, v, b.state, g.heads, g.kv_heads, self.context)
        return qkv(self._row_kernels, weight, x, q, caches, self._rope_defines, norm=norm, bias=bias, name=node.name)

    def _bias(self, node: Node) -> Op:
        x, bias = node.args
        width, count = bias.size // _FLOAT_BYTES, x.size // _FLOAT_BYTES
        groups = _over(count)
        return Op(node.name, self._small["bias"], (x, bias), (width, count), groups, "small", x.size * 2 + bias.size)

    def _head_norm(self, node: Node) -> Op:
        x, weight, heads = node.args
        kernel = self._small["head_norm"]
        return Op(node.name, kernel, (x, weight), (self.g.eps,), (heads, self.tokens, 1), "small", x.size * 2)

    def _add(self, node: Node) -> Op:
        x, y = node.args
        count = x.size // _FLOAT_BYTES
        return Op(node.name, self._small["add"], (x, y), (count,), _over(count), "small", x.size * 3)

    def _gated(self, node: Node) -> Op:
        gate, up, y = node.args
        count = y.size // _FLOAT_BYTES
        groups = _over(count)
        return Op(node.name, self._small[node.kind], (gate, up, y), (count,), groups, "small", y.size * 3)

    def _rope(self, node: Node) -> Op:
        x, heads, table = node.args
        pairs = self.tokens * heads * self.g.rotated // 2
        buffers = (x, self.b.rope_tables[table], self.b.state)
        groups = (-(-pairs // 64), 1, 1)
        return Op(node.name, self._small["rope"], buffers, (heads, self.tokens), groups, "small", x.size * 2)

    def _store(self, node: Node) -> Op:
        k, v, cache = node.args
        b, g = self.b, self.g
        buffers = (k, v, *b.cache.attention[cache], b.state)
        groups = (-(-self.tokens * g.kv_size // 64), 1, 1)
        scalars = (g.kv_heads, self.tokens, self.context)
        return Op(node.name, self._small["store"], buffers, scalars, groups, "small", k.size * 3)

    def _rope_store(self, node: Node) -> Op:
        q, k, v, cache, table = node.args
        b, g = self.b, self.g
        buffers = (q, k, v, b.rope_tables[table], *b.cache.attention[cache], b.state)
        pairs = self.tokens * (g.heads + g.kv_heads) * (g.head_size // 2)
        scalars = (g.heads, g.kv_heads, self.tokens, self.context)
        moved = 2 * q.size + 3 * k.size
        return Op(node.name, self._small["rope_store"], buffers, scalars, (-(-pairs // 64), 1, 1), "small", moved)

    def _norm_rope_store(self, node: Node) -> Op:
        q, k, v, cache, table, *weights = node.args
        b, g = self.b, self.g
        buffers = (q, k, v, *weights, b.rope_tables[table], *b.cache.attention[cache], b.state)
        scalars = (g.heads, g.kv_heads, self.context, g.eps)
        groups = (g.heads + g.kv_heads, self.tokens, 1)
        moved = 2 * q.size + 3 * k.size
        return Op(node.name, self._small["norm_rope_store"], buffers, scalars, groups, "small", moved)

    def _attend(self, node: Node) -> list[Op]:
        q, cache, y, *gate = node.args
        b, g = self.b, self.g
        window = g.windows_tokens[cache]
        if self.kernels.device.row_kernels or self.prefill:
            kernel, groups = self._small[node.kind], self._attend_tiles(self._small[node.kind], window)
            scalars: tuple[int | float, ...] = (g.heads, g.kv_heads, self.context, self.tokens, self._scale, window)
        else:
            kernel, groups = self._divided_attend(node.kind, window)
            scalars = (g.heads, g.kv_heads, self.context, self._scale, window)
        out = y if self.prefill else b.parts
        merged = node.kind != "attend"
        joined = (y, b.arrivals, *(gate or (q,))) if merged else (b.sums, b.sums, q)  # where not used, anything
        buffers: tuple[Slice, ...] = (q, *b.cache.attention[cache], b.state, out)
        if not self.prefill or self.kernels.device.row_kernels:
            buffers += (b.sums, *joined)
        moved = sum(item.size for item in (q, y, *gate))
        ops: list[Op] = [Attention(node.name, kernel, buffers, scalars, groups, moved, g.kv_size * 4, window)]
        if not self.prefill and not merged:
            merge = (b.parts, b.sums, b.state, y)
            groups = (-(-g.q_size // 64), 1, 1)
            joining = self._small["merge" + (MATRICES if kernel.name == "attend_matrices" else "")]
            ops.append(Op(node.name + "_merge", joining, merge, (g.heads, window), groups, "kv", y.size))
        return ops

    def _attend_tiles(self, kernel: Kernel, window: int) -> Groups:
        """Workgroups of attention in a prompt, and on software devices."""
        g = self.g
        if self.kernels.device.row_kernels:
            ranges = int(kernel.defines["SPLIT"])
            rows = self.tokens if self.prefill else attended_ranges(self.context_bucket, window, ranges)
            return -(-rows // self.kernels.device.subgroup_size), g.heads, 1
        return -(-self.tokens // prompt_tiles(g.head_size).queries), g.heads, 1

    def _divided_attend(self, kind: str, window: int) -> tuple[Kernel, Groups]:
        """The kernel of decode attention on GPUs that has the bucket's division, and its workgroups."""
        g = self.g
        kernel = self._small[kind]
        most, tokens = int(kernel.defines["HEADS"]), int(kernel.defines["SPLIT"])
        ranges = attended_ranges(self.context_bucket, window, tokens)
        if kind + MATRICES in self._small and sees_many(ranges * tokens):
            kernel = self._small[kind + MATRICES]
            ranges = attended_ranges(self.context_bucket, window, int(kernel.defines["SPLIT"]))
            division = shared_division(g.heads, g.kv_heads, int(kernel.defines["HEADS"]), ranges, self.kernels.resident)
            if division.workgroups == ranges:
                kernel = self._small.get(kind + ONE_RANGE, kernel)
        else:
            division = attend_division(g.heads, g.kv_heads, most, ranges, tokens, self.kernels.resident)
            if division.heads == 1:
                kernel = self._small.get(kind + ALONE, kernel)
        return kernel, (division.workgroups, sharing_workgroups(g.heads, g.kv_heads, division.heads), 1)


def _norm_and_bias(more: list[Any]) -> tuple[Norm | None, Bias | None]:
    """A node's further arguments."""
    norm = next((item for item in more if isinstance(item, Norm)), None)
    return norm, next((item for item in more if isinstance(item, Bias)), None)


def _over(count: int) -> tuple[int, int, int]:
    """Workgroups of 64 for so many elements, as many as one dimension may have; the kernel takes the rest in turns."""
    return min(-(-count // 64), MOST_GROUPS), 1, 1
