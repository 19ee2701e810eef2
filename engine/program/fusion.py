"""Passes that replace runs of nodes by one node with the same arithmetic, and so the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.program.nodes import Node, Stack
from engine.vulkan.memory import Slice

PASSES = ("qkv", "rope_store", "residual", "gate_up", "attention")
PREFILL_PASSES = ("rope_store", "residual")  # a chunk reads its weights once either way


def fuse(
    nodes: list[Node],
    passes: Sequence[str],
    stacks: Mapping[int, Stack],
    spans: Mapping[tuple[int, int], Slice],
) -> list[Node]:
    """Apply ``passes`` (names of PASSES).

    ``stacks`` maps the id() of a stack's first weight to the stack; ``spans`` maps (id() of a slice, n) to
    the slice that covers it and the n - 1 that follow it in memory.

    qkv         projections of the same input whose weights are adjacent: one matvec with more rows
    rope_store  RoPE on q, RoPE on k and the KV write: one dispatch
    residual    a projection and the addition of its result: the addition at the projection's end
    gate_up     gate and up projections and SwiGLU: one dispatch
    attention   the token ranges of decode attention and their merge: one dispatch

    One walk over the list: each pass looks at the run that starts at a node.
    """
    qkv, rope_store, residual, gate_up, attention = (name in passes for name in PASSES)
    out: list[Node] = []
    index, count = 0, len(nodes)
    while index < count:
        node = nodes[index]
        kind = node.kind
        if kind == "matvec":
            args = node.args
            if qkv and id(args[0]) in stacks:
                found = stacks[id(args[0])]
                size = len(found.members)
                if all(_is_member(nodes[index + i], found, i, args[1]) for i in range(1, size)):
                    name = node.name + "".join("+" + nodes[index + i].name.rsplit(".", 1)[-1] for i in range(1, size))
                    out.append(Node("matvec", name, (found.combined, args[1], spans[id(args[2]), size])))
                    index += size
                    continue
            following = nodes[index + 1] if index + 1 < count else node
            if residual and following.kind == "add" and following.args[1] is args[2]:
                out.append(Node("matvec_add", node.name, (args[0], args[1], following.args[0])))
                index += 2
                continue
            if gate_up and following.kind == "matvec" and index + 2 < count:
                last = nodes[index + 2]
                same = args[0].type == following.args[0].type
                if same and last.kind == "silu_mul" and last.args[:2] == (args[2], following.args[2]):
                    out.append(Node("gate_up", node.name + "+up", (args[0], following.args[0], args[1], last.args[2])))
                    index += 3
                    continue
        elif kind == "rope" and rope_store and index + 2 < count:
            second, third = nodes[index + 1], nodes[index + 2]
            if second.kind == "rope" and third.kind == "store" and third.args[0] is second.args[0]:
                out.append(Node("rope_store", node.name, (node.args[0], *third.args)))
                index += 3
                continue
        elif kind == "attend" and attention:
            node = Node("attend_merged", node.name, node.args)
        out.append(node)
        index += 1
    return out


def _is_member(node: Node, stack: Stack, number: int, x: object) -> bool:
    return node.kind == "matvec" and node.args[0] is stack.members[number] and node.args[1] is x
