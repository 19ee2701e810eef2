"""A float64 forward pass of Qwen3.5 models, straight from the definition: what the engine is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gguf
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


class DeltaWeights(NamedTuple):
    """What a Gated DeltaNet layer has between its projections."""

    conv: Array  # (channels, 4)
    bias: Array  # (value_heads,)
    a: Array  # (value_heads,)
    norm: Array  # (head_size,)


class DeltaInputs(NamedTuple):
    """A layer's projections: (tokens, channels), (tokens, value_heads * head_size), (tokens, value_heads) twice."""

    qkv: Array
    z: Array
    alpha: Array
    beta: Array


class DeltaResults(NamedTuple):
    """After each token: queries, keys and values as the delta rule takes them, its output, and the layer's.

    ``states``: (tokens + 1, value_heads, key dimension, value dimension), zeros first.
    """

    qkv: Array
    o: Array
    y: Array
    states: Array


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def delta_net(inputs: DeltaInputs, w: DeltaWeights, key_heads: int, eps: float) -> DeltaResults:
    """A layer from an empty state: value head j goes with key head j % key_heads."""
    tokens, channels = inputs.qkv.shape
    value_heads, size = len(w.bias), len(w.norm)
    padded = np.concatenate([np.zeros((3, channels)), inputs.qkv])
    qkv = silu(sum(w.conv[:, t] * padded[t : t + tokens] for t in range(4)))
    heads = qkv.reshape(tokens, 2 * key_heads + value_heads, size).copy()
    heads[:, : 2 * key_heads] /= np.sqrt((heads[:, : 2 * key_heads] ** 2).sum(-1, keepdims=True) + 1e-6)
    heads[:, :key_heads] /= size**0.5
    beta = 1 / (1 + np.exp(-inputs.beta))
    kept = np.exp(w.a * np.logaddexp(0, inputs.alpha + w.bias))
    of_key = np.arange(value_heads) % key_heads
    states = np.zeros((tokens + 1, value_heads, size, size))
    o = np.empty((tokens, value_heads, size))
    for t in range(tokens):
        q, k, v = heads[t, of_key], heads[t, key_heads + of_key], heads[t, 2 * key_heads :]
        state = states[t] * kept[t, :, None, None]
        d = beta[t, :, None] * (v - np.einsum("hij,hi->hj", state, k))
        states[t + 1] = state + k[:, :, None] * d[:, None, :]
        o[t] = np.einsum("hij,hi->hj", states[t + 1], q)
    y = o / np.sqrt((o**2).mean(-1, keepdims=True) + eps) * w.norm * silu(inputs.z).reshape(o.shape)
    return DeltaResults(heads.reshape(tokens, -1), o.reshape(tokens, -1), y.reshape(tokens, -1), states)


def logits(path: str | Path, ids: Sequence[int], kv_type: type[np.floating[Any]] = np.float64) -> Array:
    """Next-token logits after each of ``ids``, (len(ids), vocabulary) float64.

    Weights are dequantised by gguf; nothing else is rounded but keys and values, to ``kv_type``. Reads the file
    with gguf's own reader, so that it shares no code with the engine.
    """
    reader = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def setting(name: str) -> Any:
        field = reader.get_field(f"qwen35.{name}")
        assert field is not None, name
        return field.contents()

    def weight(name: str) -> Array:
        tensor = tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    heads, kv_heads = setting("attention.head_count"), setting("attention.head_count_kv")
    size, rotated = setting("attention.key_length"), setting("rope.dimension_count")
    key_heads = setting("ssm.group_count")
    eps, count = setting("attention.layer_norm_rms_epsilon"), len(ids)

    def rms(x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight(name)

    frequencies = setting("rope.freq_base") ** (-np.arange(0, rotated, 2) / rotated)
    rotation = np.exp(1j * np.arange(count)[:, None] * frequencies)

    def rope(x: Array) -> Array:
        half = rotated // 2
        turned = (x[..., :half] + 1j * x[..., half:rotated]) * rotation[:, None]
        return np.concatenate([turned.real, turned.imag, x[..., rotated:]], -1)

    def attention(h: Array, b: str) -> Array:
        q, gate = np.split((h @ weight(b + "attn_q.weight").T).reshape(count, heads, 2 * size), 2, -1)
        k = (h @ weight(b + "attn_k.weight").T).reshape(count, kv_heads, size)
        v = (h @ weight(b + "attn_v.weight").T).reshape(count, kv_heads, size)
        q, k = rope(rms(q, b + "attn_q_norm.weight")), rope(rms(k, b + "attn_k_norm.weight"))
        k, v = (values.astype(kv_type).astype(np.float64) for values in (k, v))
        k, v = (np.repeat(values, heads // kv_heads, axis=1) for values in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / size**0.5 + np.triu(np.full((count, count), -np.inf), 1)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v)
        return (attended / (1 + np.exp(-gate))).reshape(count, -1) @ weight(b + "attn_output.weight").T

    def linear(h: Array, b: str) -> Array:
        names = ("attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta")
        inputs = DeltaInputs(*(h @ weight(f"{b}{name}.weight").T for name in names))
        names = ("ssm_conv1d.weight", "ssm_dt.bias", "ssm_a", "ssm_norm.weight")
        found = delta_net(inputs, DeltaWeights(*(weight(b + name) for name in names)), key_heads, eps)
        return found.y @ weight(b + "ssm_out.weight").T

    x = weight("token_embd.weight")[list(ids)]
    for layer in range(setting("block_count")):
        b = f"blk.{layer}."
        mixer = attention if (layer + 1) % setting("full_attention_interval") == 0 else linear
        x = x + mixer(rms(x, b + "attn_norm.weight"), b)
        h = rms(x, b + "post_attention_norm.weight")
        up = silu(h @ weight(b + "ffn_gate.weight").T) * (h @ weight(b + "ffn_up.weight").T)
        x = x + up @ weight(b + "ffn_down.weight").T
    head = weight("output.weight" if "output.weight" in tensors else "token_embd.weight")
    return rms(x, "output_norm.weight") @ head.T
