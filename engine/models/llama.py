"""The llama architecture (Llama 1 to 3, SmolLM2, and what is built like them) from GGUF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.models.architecture import HostTensors
from engine.models.config import Geometry, Metadata
from engine.models.rope import frequencies
from engine.program.activations import Activations
from engine.program.matrix import Use
from engine.program.nodes import Node
from engine.weights.load import TensorSpec, Weights

ARCHITECTURE = "llama"
_UNSUPPORTED = ("attn_q.bias", "attn_k.bias", "attn_v.bias", "ffn_gate_inp.weight")

_EMBEDDING: tuple[Use, ...] = ("embed", "embed_decode")
_HEAD: tuple[Use, ...] = ("matvec", "norm_matvec", "head", "norm_head")
_PROJECTION: tuple[Use, ...] = ("matvec", "matmul")
_STACKED: tuple[Use, ...] = ("norm_matvec", "qkv", "norm_qkv")
_RESIDUAL: tuple[Use, ...] = ("matvec", "matvec_add", "matmul", "matmul_add")


def geometry(file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
    """The model's shape; see Architecture."""
    meta = Metadata(file_name, values, ARCHITECTURE)
    hidden = meta.integer("embedding_length", 32, 1 << 16)
    heads = meta.integer("attention.head_count", 1, 1024)
    kv_heads = meta.integer("attention.head_count_kv", 1, 1024, heads)
    head_size = meta.integer("attention.key_length", 8, 512, hidden // heads)
    rotated = meta.integer("rope.dimension_count", 2, 512, head_size)
    if heads % kv_heads or head_size % 8 or rotated > head_size or rotated % 2:
        raise EngineError(
            f"{file_name}: {heads} heads, {kv_heads} KV heads, head size {head_size} ({rotated} rotated) do not fit"
        )
    extra = next((name for name in _UNSUPPORTED if f"blk.0.{name}" in tensors), None)
    if extra is not None:
        raise EngineError(f"{file_name}: this llama variant has {extra}, which is not supported yet")
    embedding = tensors.get("token_embd.weight")
    vocab = embedding.shape[0] if embedding is not None and len(embedding.shape) == 2 else 0
    layers = meta.integer("block_count", 1, 1024)
    return Geometry(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        rotated=rotated,
        rope_halves=False,
        ffn=meta.integer("feed_forward_length", 32, 1 << 18),
        vocab=vocab,
        eps=meta.number("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        trained_context=meta.integer("context_length", 1, 1 << 24, 2048),
        windows_tokens=(0,) * layers,
        attention_scale=head_size**-0.5,
    )


def tensors(g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
    """Every tensor the model needs."""
    untied = "output.weight" in present
    specs = [TensorSpec("token_embd.weight", (g.vocab, g.hidden), _EMBEDDING if untied else (*_EMBEDDING, *_HEAD))]
    for layer in range(g.layers):
        b = f"blk.{layer}."
        specs += [
            TensorSpec(b + "attn_norm.weight", (g.hidden,)),
            TensorSpec(b + "attn_q.weight", (g.q_size, g.hidden), _PROJECTION, stack=b + "qkv", stacked=_STACKED),
            TensorSpec(b + "attn_k.weight", (g.kv_size, g.hidden), _PROJECTION, stack=b + "qkv", stacked=_STACKED),
            TensorSpec(b + "attn_v.weight", (g.kv_size, g.hidden), _PROJECTION, stack=b + "qkv", stacked=_STACKED),
            TensorSpec(b + "attn_output.weight", (g.hidden, g.q_size), _RESIDUAL),
            TensorSpec(b + "ffn_norm.weight", (g.hidden,)),
            TensorSpec(b + "ffn_gate.weight", (g.ffn, g.hidden), (*_PROJECTION, "gate_up", "norm_gate_up")),
            TensorSpec(b + "ffn_up.weight", (g.ffn, g.hidden), _PROJECTION),
            TensorSpec(b + "ffn_down.weight", (g.hidden, g.ffn), _RESIDUAL),
        ]
    specs.append(TensorSpec("output_norm.weight", (g.hidden,)))
    if untied:
        specs.append(TensorSpec("output.weight", (g.vocab, g.hidden), _HEAD))
    if "rope_freqs.weight" in present:
        specs.append(TensorSpec("rope_freqs.weight", (g.rotated // 2,), host=True))
    return specs


def rope_frequencies(g: Geometry, values: Mapping[str, Any], host: HostTensors) -> Sequence[npt.NDArray[np.float64]]:
    """See Architecture. One table; Llama 3.x divides its frequencies by ``rope_freqs.weight``."""
    theta = Metadata("", values, ARCHITECTURE).number("rope.freq_base", 1.0, 1e12, 1e4)
    found = frequencies(theta, g.rotated)
    factors = host.get("rope_freqs.weight")
    return (found if factors is None else found / factors,)


def layers(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """Embedding and all layers; the residual stream is left in ``a.x``."""
    get, vectors = weights.matrices, weights.vectors
    nodes = [Node("embed", "embed", (get["token_embd.weight"], a.x))]
    append = nodes.append
    for layer in range(g.layers):
        b = f"blk.{layer}."
        append(Node("norm", b + "attn_norm", (a.x, vectors[b + "attn_norm.weight"], a.normed)))
        append(Node("matvec", b + "attn_q", (get[b + "attn_q.weight"], a.normed, a.q)))
        append(Node("matvec", b + "attn_k", (get[b + "attn_k.weight"], a.normed, a.k)))
        append(Node("matvec", b + "attn_v", (get[b + "attn_v.weight"], a.normed, a.v)))
        append(Node("rope", b + "rope", (a.q, g.heads, 0)))
        append(Node("rope", b + "rope_k", (a.k, g.kv_heads, 0)))
        append(Node("store", b + "store_kv", (a.k, a.v, layer)))
        append(Node("attend", b + "attend", (a.q, layer, a.attended)))
        append(Node("matvec", b + "attn_output", (get[b + "attn_output.weight"], a.attended, a.projected)))
        append(Node("add", b + "attn_residual", (a.x, a.projected)))
        append(Node("norm", b + "ffn_norm", (a.x, vectors[b + "ffn_norm.weight"], a.normed)))
        append(Node("matvec", b + "ffn_gate", (get[b + "ffn_gate.weight"], a.normed, a.gate)))
        append(Node("matvec", b + "ffn_up", (get[b + "ffn_up.weight"], a.normed, a.up)))
        append(Node("silu_mul", b + "silu_mul", (a.gate, a.up, a.activated)))
        append(Node("matvec", b + "ffn_down", (get[b + "ffn_down.weight"], a.activated, a.projected)))
        append(Node("add", b + "ffn_residual", (a.x, a.projected)))
    return nodes


def head(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """From the last token's residual stream ``a.last`` to ``a.logits``."""
    output = weights.matrices.get("output.weight", weights.matrices["token_embd.weight"])
    return [
        Node("norm", "output_norm", (a.last, weights.vectors["output_norm.weight"], a.last_normed)),
        Node("head", "output", (output, a.last_normed, a.logits)),
    ]
