"""Passes that replace runs of nodes by one node with the same arithmetic, and so the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from engine.program.matrix import Norm
from engine.program.nodes import Node, Stack
from engine.vulkan.memory import Slice

PASSES = ("qkv", "rope_store", "residual", "gate_up", "attention", "norm", "qkv_rope", "argmax")
ROW_KERNEL_PASSES = PASSES[:5]  # of these there are kernels for software devices too
PREFILL_PASSES = ("rope_store", "residual")  # a chunk reads its weights once either way

_TAKE_NORM = ("matvec", "gate_up", "qkv_rope", "head", "head_keys")


def fuse(
    nodes: list[Node],
    passes: Sequence[str],
    stacks: Mapping[int, Stack],
    spans: Mapping[tuple[int, int], Slice],
    eps: float = 0.0,
) -> list[Node]:
    """Apply ``passes`` (names of PASSES).

    ``stacks`` maps the id() of a stack's first weight to the stack; ``spans`` maps (id() of a slice, n) to
    the slice that covers it and the n - 1 that follow it in memory. ``eps`` is the norms' epsilon.

    qkv         projections of the same input whose weights are adjacent: one matvec with more rows
    rope_store  RoPE on q, RoPE on k and the KV write: one dispatch
    residual    a projection and the addition of its result: the addition at the projection's end
    gate_up     gate and up projections and SwiGLU: one dispatch
    attention   the token ranges of decode attention and their merge: one dispatch
    norm        an RMS norm whose result one op reads: at that op's beginning, in each workgroup anew
    qkv_rope    adjacent Q, K and V projections, RoPE and the KV write: one dispatch
    argmax      the LM head and the first step of sampling: one dispatch

    One walk over the list: each pass looks at the run that starts at a node.
    """
    qkv, rope_store, residual, gate_up, attention, norm, qkv_rope, argmax = (name in passes for name in PASSES)
    out: list[Node] = []
    index, count = 0, len(nodes)
    while index < count:
        node = nodes[index]
        taken = 1
        kind = node.kind
        if kind == "matvec":
            args = node.args
            found = stacks.get(id(args[0]))
            following = nodes[index + 1] if index + 1 < count else node
            if found is not None and (qkv or qkv_rope):
                size = len(found.members)
                if all(_is_member(nodes[index + i], found, i, args[1]) for i in range(1, size)):
                    name = node.name + "".join("+" + nodes[index + i].name.rsplit(".", 1)[-1] for i in range(1, size))
                    if qkv_rope and size == 3 and (store := _rope_store(nodes, index + 3)):
                        node = Node("qkv_rope", name, (found.combined, args[1], args[2], *store[2:]))
                        taken = size + 3
                    elif qkv:
                        node = Node("matvec", name, (found.combined, args[1], spans[id(args[2]), size]))
                        taken = size
            elif residual and following.kind == "add" and following.args[1] is args[2]:
                node = Node("matvec_add", node.name, (args[0], args[1], following.args[0]))
                taken = 2
            elif gate_up and following.kind == "matvec" and index + 2 < count:
                last = nodes[index + 2]
                same = args[0].type == following.args[0].type
                if same and last.kind == "silu_mul" and last.args[:2] == (args[2], following.args[2]):
                    node = Node("gate_up", node.name + "+up", (args[0], following.args[0], args[1], last.args[2]))
                    taken = 3
        elif kind == "rope" and rope_store and (store := _rope_store(nodes, index)):
            node = Node("rope_store", node.name, (node.args[0], *store))
            taken = 3
        elif kind == "attend" and attention:
            node = Node("attend_merged", node.name, node.args)
        elif kind == "head" and argmax:
            node = Node("head_keys", node.name, node.args)
        index += taken
        if norm and node.kind in _TAKE_NORM and out and out[-1].kind == "norm":
            x, weight, normed = out[-1].args
            read_again = index < count and any(item is normed for item in nodes[index].args)
            if any(item is normed for item in node.args) and not read_again:
                out.pop()
                args = tuple(x if item is normed else item for item in node.args)
                node = Node(node.kind, node.name, (*args, Norm(weight, eps)))
        out.append(node)
    return out


def _is_member(node: Node, stack: Stack, number: int, x: object) -> bool:
    return node.kind == "matvec" and node.args[0] is stack.members[number] and node.args[1] is x


def _rope_store(nodes: list[Node], index: int) -> tuple[Any, ...] | None:
    """(k, v, cache, table) where RoPE on q, RoPE on k and the KV write start at ``index``."""
    if index + 2 >= len(nodes):
        return None
    first, second, third = nodes[index : index + 3]
    kinds = (first.kind, second.kind, third.kind)
    if kinds == ("rope", "rope", "store") and third.args[0] is second.args[0] and first.args[2] == second.args[2]:
        return (*third.args, first.args[2])
    return None
