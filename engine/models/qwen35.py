"""Qwen3.5 (GGUF's qwen35): layers of Gated DeltaNet, every fourth one of gated attention.

Facts: transformers' models/qwen3_5, and llama.cpp's conversion of it: value heads are tiled (value head j goes with key
head j modulo their number), norms hold 1 + weight, ``ssm_a`` holds -exp(A_log). The vision tower has files of its own,
and the layers that predict further tokens come after the others, where nothing reads them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.models import blocks
from engine.models.architecture import HostTensors
from engine.models.blocks import EMBEDDING, HEAD, PROJECTION, RESIDUAL, head
from engine.models.config import DeltaShape, Geometry, Metadata
from engine.models.rope import scaled_frequencies
from engine.program.activations import Activations
from engine.program.matrix_kernels import Use
from engine.program.nodes import Node
from engine.weights.load import Rows, TensorSpec, Weights

__all__ = ["ARCHITECTURE", "geometry", "head", "layers", "rope_frequencies", "tensors"]

ARCHITECTURE = "qwen35"

_STACKED: tuple[Use, ...] = ("matvec", "norm_matvec")


def geometry(file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
    """The model's shape; see Architecture."""
    meta = Metadata(file_name, values, ARCHITECTURE)
    found = blocks.common_geometry(meta, tensors, ("head_norm", "norm_rope_store", "attend_gated"), rope_halves=True)
    layers = found.layers - meta.integer("nextn_predict_layers", 0, found.layers, 0)
    delta = _delta(meta, layers)
    found = replace(
        found,
        layers=layers,
        windows_tokens=(0,) * (layers // delta.interval),
        delta=delta,
        extra=(
            ("qkv", delta.conv_size),
            ("z", delta.value_size),
            ("alpha", delta.value_heads),
            ("beta", delta.value_heads),
            ("mixed", delta.conv_size),
            ("o", delta.value_size),
            ("gated", delta.value_size),
            ("attention_gate", found.q_size),
        ),
    )
    blocks.refuse_others(meta, tensors, _tensors(found, tensors), layers)
    return found


def _delta(meta: Metadata, layers: int) -> DeltaShape:
    size = meta.integer("ssm.state_size", 32, 256)
    key_heads = meta.integer("ssm.group_count", 1, 1024)
    value_heads = meta.integer("ssm.time_step_rank", 1, 1024)
    conv_tokens = meta.integer("ssm.conv_kernel", 4, 4)
    inner = meta.integer("ssm.inner_size", 32, 1 << 18)
    if size % 32 or value_heads % key_heads or inner != value_heads * size:
        raise EngineError(
            f"{meta.file_name}: {key_heads} linear key heads, {value_heads} value heads of {size}, {inner} in all, "
            "do not fit"
        )
    interval = meta.integer("full_attention_interval", 2, 1024, 4)
    return DeltaShape(layers - layers // interval, key_heads, value_heads, size, conv_tokens, interval)


def _is_attention(layer: int, g: Geometry) -> bool:
    assert g.delta is not None
    return (layer + 1) % g.delta.interval == 0


def tensors(g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
    """Every tensor the model needs."""
    return _tensors(g, present)


def _tensors(g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
    untied = "output.weight" in present
    specs = [TensorSpec("token_embd.weight", (g.vocab, g.hidden), EMBEDDING if untied else (*EMBEDDING, *HEAD))]
    for layer in range(g.layers):
        b = f"blk.{layer}."
        specs.append(TensorSpec(b + "attn_norm.weight", (g.hidden,)))
        specs += _attention_tensors(g, b) if _is_attention(layer, g) else _delta_tensors(g, b)
        specs += [
            TensorSpec(b + "post_attention_norm.weight", (g.hidden,)),
            TensorSpec(b + "ffn_gate.weight", (g.ffn, g.hidden), (*PROJECTION, "gate_up", "norm_gate_up")),
            TensorSpec(b + "ffn_up.weight", (g.ffn, g.hidden), PROJECTION),
            TensorSpec(b + "ffn_down.weight", (g.hidden, g.ffn), RESIDUAL),
        ]
    specs.append(TensorSpec("output_norm.weight", (g.hidden,)))
    if untied:
        specs.append(TensorSpec("output.weight", (g.vocab, g.hidden), HEAD))
    return specs


def _attention_tensors(g: Geometry, b: str) -> list[TensorSpec]:
    """Of each head's rows of ``attn_q`` the first half are queries, the others the output's gate."""
    size = g.head_size
    query_rows, gate_rows = Rows(2 * size, 0, size), Rows(2 * size, size, size)
    return [
        replace(_projection(g, b, "attn_q", g.q_size, "qkv"), rows=query_rows),
        _projection(g, b, "attn_k", g.kv_size, "qkv"),
        _projection(g, b, "attn_v", g.kv_size, "qkv"),
        replace(
            _projection(g, b, "attn_q", g.q_size, "gate"), name=_gate(b), source=b + "attn_q.weight", rows=gate_rows
        ),
        TensorSpec(b + "attn_q_norm.weight", (size,)),
        TensorSpec(b + "attn_k_norm.weight", (size,)),
        TensorSpec(b + "attn_output.weight", (g.hidden, g.q_size), RESIDUAL),
    ]


def _projection(g: Geometry, b: str, name: str, rows: int, stack: str) -> TensorSpec:
    return TensorSpec(f"{b}{name}.weight", (rows, g.hidden), PROJECTION, stack=b + stack, stacked=_STACKED)


def _gate(b: str) -> str:
    return b + "attn_q.gate"


def _delta_tensors(g: Geometry, b: str) -> list[TensorSpec]:
    shape = g.delta
    assert shape is not None
    heads = shape.value_heads
    return [
        _projection(g, b, "attn_qkv", shape.conv_size, "delta"),
        _projection(g, b, "attn_gate", shape.value_size, "delta"),
        _projection(g, b, "ssm_alpha", heads, "delta"),
        _projection(g, b, "ssm_beta", heads, "delta"),
        TensorSpec(b + "ssm_conv1d.weight", (shape.conv_size, shape.conv_tokens)),
        TensorSpec(b + "ssm_dt.bias", (heads,)),
        TensorSpec(b + "ssm_a", (heads,)),
        TensorSpec(b + "ssm_norm.weight", (shape.head_size,)),
        TensorSpec(b + "ssm_out.weight", (g.hidden, shape.value_size), RESIDUAL),
    ]


def rope_frequencies(g: Geometry, values: Mapping[str, Any], host: HostTensors) -> Sequence[npt.NDArray[np.float64]]:
    """See Architecture. One table; of a text's tokens the three positions of its sections are the same."""
    meta = Metadata("", values, ARCHITECTURE)
    return (scaled_frequencies(meta, g.rotated, default_theta=1e7),)


def layers(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """Embedding and all layers; the residual stream is left in ``a.x``."""
    get, vectors = weights.matrices, weights.vectors
    nodes = [Node("embed", "embed", (get["token_embd.weight"], a.x))]
    append = nodes.append
    caches = states = 0
    for layer in range(g.layers):
        b = f"blk.{layer}."
        append(Node("norm", b + "attn_norm", (a.x, vectors[b + "attn_norm.weight"], a.normed)))
        if _is_attention(layer, g):
            nodes += _attention(g, weights, a, b, caches)
            caches += 1
        else:
            nodes += _delta_net(weights, a, b, states)
            states += 1
        append(Node("add", b + "attn_residual", (a.x, a.projected)))
        norm = "post_attention_norm"
        append(Node("norm", b + norm, (a.x, vectors[f"{b}{norm}.weight"], a.normed)))
        append(Node("matvec", b + "ffn_gate", (get[b + "ffn_gate.weight"], a.normed, a.gate)))
        append(Node("matvec", b + "ffn_up", (get[b + "ffn_up.weight"], a.normed, a.up)))
        append(Node("silu_mul", b + "silu_mul", (a.gate, a.up, a.activated)))
        append(Node("matvec", b + "ffn_down", (get[b + "ffn_down.weight"], a.activated, a.projected)))
        append(Node("add", b + "ffn_residual", (a.x, a.projected)))
    return nodes


def _attention(g: Geometry, weights: Weights, a: Activations, b: str, cache: int) -> list[Node]:
    get, vectors, gate = weights.matrices, weights.vectors, a.extra["attention_gate"]
    return [
        Node("matvec", b + "attn_q", (get[b + "attn_q.weight"], a.normed, a.q)),
        Node("matvec", b + "attn_k", (get[b + "attn_k.weight"], a.normed, a.k)),
        Node("matvec", b + "attn_v", (get[b + "attn_v.weight"], a.normed, a.v)),
        Node("matvec", b + "attn_q.gate", (get[_gate(b)], a.normed, gate)),
        Node("head_norm", b + "attn_q_norm", (a.q, vectors[b + "attn_q_norm.weight"], g.heads)),
        Node("head_norm", b + "attn_k_norm", (a.k, vectors[b + "attn_k_norm.weight"], g.kv_heads)),
        Node("rope", b + "rope", (a.q, g.heads, 0)),
        Node("rope", b + "rope_k", (a.k, g.kv_heads, 0)),
        Node("store", b + "store_kv", (a.k, a.v, cache)),
        Node("attend", b + "attend", (a.q, cache, a.attended)),
        Node("sigmoid_mul", b + "output_gate", (a.attended, gate)),
        Node("matvec", b + "attn_output", (get[b + "attn_output.weight"], a.attended, a.projected)),
    ]


def _delta_net(weights: Weights, a: Activations, b: str, state: int) -> list[Node]:
    get, vectors, extra = weights.matrices, weights.vectors, a.extra
    qkv, z, alpha, beta, mixed, o, gated = (
        extra[name] for name in ("qkv", "z", "alpha", "beta", "mixed", "o", "gated")
    )
    bias, factor = vectors[b + "ssm_dt.bias"], vectors[b + "ssm_a"]
    return [
        Node("matvec", b + "attn_qkv", (get[b + "attn_qkv.weight"], a.normed, qkv)),
        Node("matvec", b + "attn_gate", (get[b + "attn_gate.weight"], a.normed, z)),
        Node("matvec", b + "ssm_alpha", (get[b + "ssm_alpha.weight"], a.normed, alpha)),
        Node("matvec", b + "ssm_beta", (get[b + "ssm_beta.weight"], a.normed, beta)),
        Node("conv", b + "ssm_conv1d", (qkv, vectors[b + "ssm_conv1d.weight"], state, mixed)),
        Node("delta", b + "ssm_dt", (qkv, mixed, alpha, beta, bias, factor, state, o)),
        Node("gated_norm", b + "ssm_norm", (o, z, vectors[b + "ssm_norm.weight"], gated)),
        Node("matvec", b + "ssm_out", (get[b + "ssm_out.weight"], gated, a.projected)),
    ]
