"""What a model computes, before anything is said about kernels: a list of nodes.

An architecture emits nodes, fusion passes replace runs of them, and lowering turns each into an op. The
same list serves one decode token and a prompt chunk. Arguments by kind (slices hold float32 activations,
``tokens`` rows of them):

    embed       (table, y, scale)          y = rows of the embedding table, times a number if there is one
    norm        (x, weight, y)             y = RMS norm of x
    norm_add    (x, weight, y)             y += RMS norm of x
    matvec      (weight, x, y)             y = W x
    matvec_add  (weight, x, y)             y += W x
    bias        (x, bias)                  x += bias, the same for each token
    add         (x, y)                     x += y
    head_norm   (x, weight, heads)         RMS norm of each head in place
    rope        (x, heads, table)          rotary embedding in place, by the RoPE table of that number
    store       (k, v, cache)              k and v into the KV cache of that number
    rope_store  (q, k, v, cache, table)    rope on q and k, and store
    norm_rope_store  (q, k, v, cache, table, q_weight, k_weight)  head_norm on q and k, then rope_store
    qkv_rope    (weight, x, q, cache, table)  the stacked projections q, k, v of x, then rope_store; table None: store
    attend      (q, cache, y)              attention over the KV cache of that number
    attend_merged  (q, cache, y)           the same in one dispatch
    attend_gated  (q, cache, y, gate)      the same, times sigmoid(gate)
    silu_mul    (gate, up, y)              y = silu(gate) * up
    gelu_mul    (gate, up, y)              y = gelu(gate) * up
    gate_up     (gate, up, x, y)           y = silu(Wg x) * (Wu x)
    gate_up_gelu  (gate, up, x, y)         y = gelu(Wg x) * (Wu x)
    head        (weight, x, y)             logits = W x
    head_keys   (weight, x, y)             the same, with the first step of sampling (engine.program.sample)

``engine.program.delta`` lists those of Gated DeltaNet layers.
Attention layers number their KV caches, and recurrent layers their states, from 0 each in the order of the layers.
All that multiply by weights may have an ``operands.Norm`` as a further argument: x is first normed. matvec and qkv_rope
may have an ``operands.Bias``: it is added to the products.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from engine.program.operands import Weight


class Node(NamedTuple):
    """One step of a model; ``name`` is what the timeline calls it."""

    kind: str
    name: str
    args: tuple[Any, ...]


class Stack(NamedTuple):
    """Weights that lie one after another in memory, so that one matvec over ``combined`` does all ``members``."""

    members: tuple[Weight, ...]
    combined: Weight
