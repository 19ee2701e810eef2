"""What decoders of the usual build share: attention and a gated feed-forward, each after a norm and added to a stream.

An architecture says in a ``Block`` how its layers differ from Llama's, and takes shape, tensors and nodes from here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from engine.errors import EngineError
from engine.models.config import Geometry, Metadata
from engine.models.rope import linear_factor
from engine.program.activations import Activations
from engine.program.matrix_kernels import Use
from engine.program.nodes import Node
from engine.weights.load import TensorSpec, Weights

EMBEDDING: tuple[Use, ...] = ("embed", "embed_decode")
HEAD: tuple[Use, ...] = ("matvec", "norm_matvec", "head", "norm_head")
PROJECTION: tuple[Use, ...] = ("matvec", "norm_matvec", "matmul")
_BIASED: tuple[Use, ...] = ("matvec_bias", "norm_matvec_bias", "matmul_bias")
RESIDUAL: tuple[Use, ...] = ("matvec", "matvec_add", "matmul", "matmul_add")


@dataclass(frozen=True, slots=True)
class Block:
    """How layers differ from Llama's; the tensors that this takes are named as in GGUF."""

    bias: bool = False  # attn_q.bias and so on are added to the projections q, k and v
    head_norm: bool = False  # an RMS norm of each head of q and k before RoPE, attn_q_norm and attn_k_norm
    post_norm: bool = False  # norms of what joins the residual stream, post_attention_norm and post_ffw_norm
    gelu: bool = False  # in the feed-forward, instead of SiLU

    @property
    def kinds(self) -> tuple[str, ...]:
        """For Geometry.further_kinds."""
        kinds = {"bias": self.bias, "head_norm": self.head_norm, "norm_rope_store": self.head_norm}
        kinds |= {"norm_add": self.post_norm, "gelu_mul": self.gelu}
        return tuple(kind for kind, wanted in kinds.items() if wanted)


def geometry(
    meta: Metadata, present: Mapping[str, Any], block: Block, *, rope_halves: bool, others: Sequence[str] = ()
) -> Geometry:
    """The shape by the header: every layer sees all tokens, attention is scaled by the head size.

    Raise EngineError where the header is incomplete or absurd, and for a tensor that neither a block of this kind has
    nor ``others`` names.
    """
    found = common_geometry(meta, present, block.kinds, rope_halves=rope_halves)
    refuse_others(meta, present, tensors(found, present, block, (0,) * found.layers), found.layers, others)
    return found


def common_geometry(
    meta: Metadata, present: Mapping[str, Any], kinds: tuple[str, ...], *, rope_halves: bool
) -> Geometry:
    """The shape by the header, as if all layers were of attention. Errors as of ``geometry`` but for tensors."""
    hidden = meta.integer("embedding_length", 32, 1 << 16)
    heads = meta.integer("attention.head_count", 1, 1024)
    kv_heads = meta.integer("attention.head_count_kv", 1, 1024, heads)
    head_size = meta.integer("attention.key_length", 8, 512, hidden // heads)
    rotated = meta.integer("rope.dimension_count", 2, 512, head_size)
    if heads % kv_heads or head_size % 8 or rotated > head_size or rotated % 2:
        raise EngineError(
            f"{meta.file_name}: {heads} heads, {kv_heads} KV heads, head size {head_size} ({rotated} rotated) "
            "do not fit"
        )
    if meta.integer("attention.value_length", 8, 512, head_size) != head_size:
        raise EngineError(f"{meta.file_name}: keys and values of different sizes are not supported")
    linear_factor(meta)  # raises where the scaling is of another kind
    embedding = present.get("token_embd.weight")
    layers = meta.integer("block_count", 1, 1024)
    return Geometry(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rotated=rotated,
        rope_halves=rope_halves,
        ffn=meta.integer("feed_forward_length", 32, 1 << 18),
        vocab=embedding.shape[0] if embedding is not None and len(embedding.shape) == 2 else 0,
        eps=meta.number("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        trained_context=meta.integer("context_length", 1, 1 << 24, 2048),
        windows_tokens=(0,) * layers,
        attention_scale=head_size**-0.5,
        further_kinds=kinds,
    )


def refuse_others(
    meta: Metadata, present: Mapping[str, Any], specs: Sequence[TensorSpec], layers: int, others: Sequence[str] = ()
) -> None:
    """Raise EngineError for a tensor of the first ``layers`` layers, or of none, that is not among ``specs``.

    To leave it out would give another model; ``others`` may be.
    """
    known = {spec.file_name for spec in specs} | set(others)
    beyond = next((name for name in present if name not in known and _is_within(name, layers)), None)
    if beyond is not None:
        raise EngineError(
            f"{meta.file_name}: this {meta.architecture} variant has {beyond}, which is not supported yet"
        )


def refuse_windows(meta: Metadata) -> None:
    """Raise EngineError for a file with a sliding window, of an architecture whose files do not say in which layers."""
    if meta.integer("attention.sliding_window", 0, 1 << 24, 0):
        raise EngineError(f"{meta.file_name}: a sliding window in a {meta.architecture} model is not supported")


def _is_within(name: str, layers: int) -> bool:
    """Whether a tensor is of one of the first ``layers`` layers, or of none; a vision tower's is not of this model."""
    start, _, rest = name.partition(".")
    if start in ("v", "mm"):
        return False
    number = rest.partition(".")[0]
    return start != "blk" or not number.isdecimal() or int(number) < layers


def tensors(g: Geometry, present: Mapping[str, Any], block: Block, tables: Sequence[int | None]) -> list[TensorSpec]:
    """Every tensor of a model of such blocks; ``tables`` as for ``layers``."""
    untied = "output.weight" in present
    specs = [TensorSpec("token_embd.weight", (g.vocab, g.hidden), EMBEDDING if untied else (*EMBEDDING, *HEAD))]
    for layer in range(g.layers):
        specs += _attention_tensors(g, f"blk.{layer}.", block, tables[layer])
        specs += feed_forward_tensors(g, f"blk.{layer}.", block)
    specs.append(TensorSpec("output_norm.weight", (g.hidden,)))
    if untied:
        specs.append(TensorSpec("output.weight", (g.vocab, g.hidden), HEAD))
    return specs


def _attention_tensors(g: Geometry, b: str, block: Block, table: int | None) -> list[TensorSpec]:
    uses = (*PROJECTION, *_BIASED) if block.bias else PROJECTION
    stacked = _stacked(block, table)
    sizes = {"q": g.q_size, "k": g.kv_size, "v": g.kv_size}
    specs = [TensorSpec(b + "attn_norm.weight", (g.hidden,))]
    for name, size in sizes.items():
        weight = f"{b}attn_{name}.weight"
        specs.append(TensorSpec(weight, (size, g.hidden), uses, stack=b + "qkv", stacked=stacked))
    if block.bias:
        specs += [TensorSpec(f"{b}attn_{name}.bias", (size,), stack=b + "bias") for name, size in sizes.items()]
    if block.head_norm:
        specs += [TensorSpec(f"{b}attn_{name}_norm.weight", (g.head_size,)) for name in ("q", "k")]
    specs.append(TensorSpec(b + "attn_output.weight", (g.hidden, g.q_size), RESIDUAL))
    if block.post_norm:
        specs.append(TensorSpec(b + "post_attention_norm.weight", (g.hidden,)))
    return specs


def _stacked(block: Block, table: int | None) -> tuple[Use, ...]:
    """What q, k and v stacked may become part of, beside what each of them may alone."""
    if block.head_norm:  # which stands between them and RoPE
        return ()
    if table is None:
        return "qkv_store", "norm_qkv_store"
    return ("qkv_bias", "norm_qkv_bias") if block.bias else ("qkv", "norm_qkv")


def feed_forward_tensors(g: Geometry, b: str, block: Block) -> list[TensorSpec]:
    """Those of the gated feed-forward of the layer whose tensors begin with ``b``."""
    fused: tuple[Use, ...] = ("gate_up_gelu", "norm_gate_up_gelu") if block.gelu else ("gate_up", "norm_gate_up")
    specs = [
        TensorSpec(b + "ffn_norm.weight", (g.hidden,)),
        TensorSpec(b + "ffn_gate.weight", (g.ffn, g.hidden), (*PROJECTION, *fused)),
        TensorSpec(b + "ffn_up.weight", (g.ffn, g.hidden), PROJECTION),
        TensorSpec(b + "ffn_down.weight", (g.hidden, g.ffn), RESIDUAL),
    ]
    if block.post_norm:
        specs.append(TensorSpec(b + "post_ffw_norm.weight", (g.hidden,)))
    return specs


def layers(
    g: Geometry,
    weights: Weights,
    a: Activations,
    block: Block,
    tables: Sequence[int | None],
    embedding_scale: float | None = None,
) -> list[Node]:
    """Embedding (times ``embedding_scale``) and all layers; the residual stream is left in ``a.x``.

    ``tables``: the number of each layer's RoPE table; None: it has no RoPE.
    """
    table = weights.matrices["token_embd.weight"]
    nodes = [Node("embed", "embed", (table, a.x) if embedding_scale is None else (table, a.x, embedding_scale))]
    for layer in range(g.layers):
        _attention(nodes, g, weights, a, block, layer, tables[layer])
        feed_forward(nodes, weights, a, block, layer)
    return nodes


def _attention(
    nodes: list[Node], g: Geometry, weights: Weights, a: Activations, block: Block, layer: int, table: int | None
) -> None:
    get, vectors, append, b = weights.matrices, weights.vectors, nodes.append, f"blk.{layer}."
    append(Node("norm", b + "attn_norm", (a.x, vectors[b + "attn_norm.weight"], a.normed)))
    for name, y in ((b + "attn_q", a.q), (b + "attn_k", a.k), (b + "attn_v", a.v)):
        append(Node("matvec", name, (get[name + ".weight"], a.normed, y)))
        if block.bias:
            append(Node("bias", name + ".bias", (y, vectors[name + ".bias"])))
    if block.head_norm:
        append(Node("head_norm", b + "attn_q_norm", (a.q, vectors[b + "attn_q_norm.weight"], g.heads)))
        append(Node("head_norm", b + "attn_k_norm", (a.k, vectors[b + "attn_k_norm.weight"], g.kv_heads)))
    if table is not None:
        append(Node("rope", b + "rope", (a.q, g.heads, table)))
        append(Node("rope", b + "rope_k", (a.k, g.kv_heads, table)))
    append(Node("store", b + "store_kv", (a.k, a.v, layer)))
    append(Node("attend", b + "attend", (a.q, layer, a.attended)))
    append(Node("matvec", b + "attn_output", (get[b + "attn_output.weight"], a.attended, a.projected)))
    _join(nodes, weights, a, b + "post_attention_norm" if block.post_norm else None, b + "attn_residual")


def feed_forward(nodes: list[Node], weights: Weights, a: Activations, block: Block, layer: int) -> None:
    """Append a layer's feed-forward, from ``a.x`` and onto it."""
    get, append, b = weights.matrices, nodes.append, f"blk.{layer}."
    append(Node("norm", b + "ffn_norm", (a.x, weights.vectors[b + "ffn_norm.weight"], a.normed)))
    append(Node("matvec", b + "ffn_gate", (get[b + "ffn_gate.weight"], a.normed, a.gate)))
    append(Node("matvec", b + "ffn_up", (get[b + "ffn_up.weight"], a.normed, a.up)))
    kind = "gelu_mul" if block.gelu else "silu_mul"
    append(Node(kind, b + kind, (a.gate, a.up, a.activated)))
    append(Node("matvec", b + "ffn_down", (get[b + "ffn_down.weight"], a.activated, a.projected)))
    _join(nodes, weights, a, b + "post_ffw_norm" if block.post_norm else None, b + "ffn_residual")


def _join(nodes: list[Node], weights: Weights, a: Activations, norm: str | None, name: str) -> None:
    """Add what was projected, normed if there is a norm, to the residual stream."""
    if norm is not None:
        nodes.append(Node("norm", norm, (a.projected, weights.vectors[norm + ".weight"], a.normed)))
    nodes.append(Node("add", name, (a.x, a.projected if norm is None else a.normed)))


def head(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """From the last token's residual stream ``a.last`` to ``a.logits``; see Architecture."""
    output = weights.matrices.get("output.weight", weights.matrices["token_embd.weight"])
    return [
        Node("norm", "output_norm", (a.last, weights.vectors["output_norm.weight"], a.last_normed)),
        Node("head", "output", (output, a.last_normed, a.logits)),
    ]
