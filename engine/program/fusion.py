"""Passes that replace runs of nodes by one node with the same arithmetic, and so the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from engine.program.nodes import Node, Stack
from engine.program.operands import Bias, Norm, Weight
from engine.vulkan.memory import Slice

PASSES = ("qkv", "rope_store", "residual", "gate_up", "attention", "bias", "norm", "qkv_rope", "argmax", "delta")
ROW_KERNEL_PASSES = PASSES[:6]  # of these there are kernels for software devices too
PREFILL_PASSES = ("rope_store", "residual", "bias")  # a chunk reads its weights once either way

_TAKE_NORM = ("matvec", "gate_up", "gate_up_gelu", "qkv_rope", "head", "head_keys")
_GATED = {"silu_mul": "gate_up", "gelu_mul": "gate_up_gelu"}


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
    rope_store  the norms of q's and k's heads (if there are), RoPE on q and on k and the KV write: one dispatch
    residual    a projection, or a norm, and the addition of its result: the addition at its end
    gate_up     gate and up projections and SwiGLU (or the same with GELU): one dispatch
    attention   the token ranges of decode attention, their merge, and the output's gate if there is: one dispatch
    bias        a projection and its bias: the addition at the projection's end
    norm        an RMS norm that only projections read: at their beginning, in each workgroup anew
    qkv_rope    adjacent Q, K and V projections, RoPE (if there is) and the KV write: one dispatch; where these have
                biases, it needs that pass too
    argmax      the LM head and the first step of sampling: one dispatch
    delta       of Gated DeltaNet layers the convolution, the delta rule and the gated norm: one dispatch

    A node's name says what it took in: "blk.0.attn_norm+attn_q+k+v+rope".
    One walk over the list: each pass looks at the run that starts at a node. The norms come last.
    """
    qkv, rope_store, residual, gate_up, attention, bias, norm, qkv_rope, argmax, delta = (
        name in passes for name in PASSES
    )
    out: list[Node] = []
    index, count = 0, len(nodes)
    while index < count:
        node = nodes[index]
        taken = 1
        left = None  # a node of the run that stays
        kind = node.kind
        if kind == "matvec":
            args = node.args
            found = stacks.get(id(args[0]))
            following = nodes[index + 1] if index + 1 < count else node
            run = _stacked(nodes, index, found, spans) if found is not None and (qkv or qkv_rope) else None
            if run is not None:
                added = (Bias(run.bias),) if run.bias is not None and bias else ()
                biased = run.bias is not None
                store = _store(nodes, index + run.length) if qkv_rope and run.members == 3 else None
                if store is not None and (not biased or (added and store.table is not None)):
                    written = (store.cache, store.table, *added)
                    end = "+store" if store.table is None else "+rope"
                    node = Node("qkv_rope", run.name + end, (run.weight, args[1], args[2], *written))
                    taken = run.length + store.length
                elif qkv:
                    node = Node("matvec", run.name, (run.weight, args[1], run.y, *added))
                    taken = run.length
                    left = Node("bias", run.name + ".bias", (run.y, run.bias)) if biased and not added else None
            elif following.kind == "bias" and following.args[0] is args[2]:
                if bias:
                    node = Node("matvec", node.name, (*args, Bias(following.args[1])))
                    taken = 2
            elif residual and following.kind == "add" and following.args[1] is args[2]:
                node = Node("matvec_add", node.name + "+residual", (args[0], args[1], following.args[0]))
                taken = 2
            elif gate_up and following.kind == "matvec" and index + 2 < count:
                last = nodes[index + 2]
                same = args[0].type == following.args[0].type
                if same and last.kind in _GATED and last.args[:2] == (args[2], following.args[2]):
                    both = (args[0], following.args[0], args[1], last.args[2])
                    node = Node(_GATED[last.kind], node.name + "+up", both)
                    taken = 3
        elif kind == "rope" and rope_store and (store := _store(nodes, index)):
            node = Node("rope_store", node.name + "+store", (node.args[0], store.k, store.v, store.cache, store.table))
            taken = 3
        elif kind == "head_norm" and rope_store and (store := _normed_store(nodes, index)):
            weights = node.args[1], nodes[index + 1].args[1]
            written = (store.k, store.v, store.cache, store.table)
            node = Node("norm_rope_store", node.name + "+k_norm+rope+store", (node.args[0], *written, *weights))
            taken = 5
        elif kind == "norm" and residual and index + 1 < count:
            following = nodes[index + 1]
            if following.kind == "add" and following.args[1] is node.args[2]:
                node = Node("norm_add", node.name + "+residual", (*node.args[:2], following.args[0]))
                taken = 2
        elif kind == "conv" and delta:
            node = _delta_step(*nodes[index : index + 3])
            taken = 3
        elif kind == "attend" and attention:
            following = nodes[index + 1]
            if following.kind == "sigmoid_mul" and following.args[0] is node.args[2]:
                node = Node("attend_gated", node.name + "+gate", (*node.args, following.args[1]))
                taken = 2
            else:
                node = Node("attend_merged", node.name, node.args)
        elif kind == "head" and argmax and not node.args[0].parts:
            node = Node("head_keys", node.name + "+argmax", node.args)
        index += taken
        out.append(node)
        if left is not None:
            out.append(left)
    return _fold_norms(out, eps) if norm else out


def _fold_norms(nodes: list[Node], eps: float) -> list[Node]:
    out: list[Node] = []
    index, count = 0, len(nodes)
    while index < count:
        node = nodes[index]
        index += 1
        if node.kind != "norm":
            out.append(node)
            continue
        x, weight, normed = node.args
        end, fits = index, False  # who reads a norm stands together, but for biases
        while end < count:
            reader = nodes[end]
            if reader.kind != "bias":
                if normed not in reader.args:
                    break
                fits = reader.kind in _TAKE_NORM
                if not fits:
                    break
            end += 1
        if not fits:
            out.append(node)
            continue
        more = Norm(weight, eps)
        for reader in nodes[index:end]:
            if reader.kind != "bias":
                args = [x if item is normed else item for item in reader.args]
                name = f"{node.name}+{reader.name.rpartition('.')[2]}"
                reader = Node(reader.kind, name, (*args, more))
            out.append(reader)
        index = end
    return out


def _delta_step(conv: Node, delta: Node, norm: Node) -> Node:
    x, conv_weight, state, _ = conv.args
    _, _, alpha, beta, bias, a, _, _ = delta.args
    _, z, weight, y = norm.args
    return Node("delta_step", conv.name + "+dt+norm", (x, conv_weight, alpha, beta, bias, a, z, weight, state, y))


class _Run(NamedTuple):
    """The projections of a stack, one after another, each with its bias behind it if they have any."""

    members: int
    length: int  # in nodes
    name: str
    weight: Weight
    y: Slice
    bias: Slice | None


def _stacked(nodes: list[Node], index: int, stack: Stack, spans: Mapping[tuple[int, int], Slice]) -> _Run | None:
    first, at = nodes[index], index
    name, biases = "", []
    for member in stack.members:
        node = nodes[at]
        if node.kind != "matvec" or node.args[0] is not member or node.args[1] is not first.args[1]:
            return None
        name = f"{name}+{node.name.rpartition('.')[2].removeprefix('attn_')}" if name else node.name
        at += 1
        if nodes[at].kind == "bias" and nodes[at].args[0] is node.args[2]:
            biases.append(nodes[at].args[1])
            at += 1
    size = len(stack.members)
    bias = spans.get((id(biases[0]), size)) if len(biases) == size else None
    if biases and bias is None:
        return None
    return _Run(size, at - index, name, stack.combined, spans[id(first.args[2]), size], bias)


class _Store(NamedTuple):
    """A KV write with the RoPE before it; ``table`` None: there is none."""

    length: int  # in nodes
    k: Slice
    v: Slice
    cache: int
    table: int | None


def _store(nodes: list[Node], index: int) -> _Store | None:
    """The KV write at ``index``, or with RoPE on q and on k from there on."""
    node = nodes[index]
    if node.kind == "store":
        k, v, cache = node.args
        return _Store(1, k, v, cache, None)
    if node.kind != "rope" or index + 2 >= len(nodes):
        return None
    second, third = nodes[index + 1], nodes[index + 2]
    if second.kind != "rope" or third.kind != "store":
        return None
    if third.args[0] is not second.args[0] or second.args[2] != node.args[2]:
        return None
    k, v, cache = third.args
    return _Store(3, k, v, cache, node.args[2])


def _normed_store(nodes: list[Node], index: int) -> _Store | None:
    """The KV write with RoPE before it whose q's and k's heads are normed from ``index`` on."""
    if index + 2 >= len(nodes) or nodes[index + 1].kind != "head_norm":
        return None
    store = _store(nodes, index + 2)
    if store is None or store.table is None:
        return None
    normed = nodes[index].args[0], nodes[index + 1].args[0]
    return store if normed[0] is nodes[index + 2].args[0] and normed[1] is store.k else None
