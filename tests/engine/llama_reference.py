"""A float64 forward pass of llama and the models built like it, straight from the definition, to compare with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
_PAIRS = ("llama", "smollm3")  # whose GGUF files have RoPE turn (2i, 2i + 1); the others' halves


def logits(
    path: str | Path,
    ids: Sequence[int],
    kv_type: type[np.floating[Any]] = np.float64,
    weight_type: type[np.floating[Any]] = np.float64,
) -> Array:
    """Next-token logits after each of ``ids``, (len(ids), vocabulary) float64.

    Weights are dequantised by gguf; nothing else is rounded but keys and values, to ``kv_type``, and the layers'
    matrices, to ``weight_type``. Reads the file
    with gguf's own reader, so that it shares no code with the engine. Terms that only some architectures have (biases,
    norms) are there where their tensors are.
    """
    reader = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    field = reader.get_field("general.architecture")
    assert field is not None
    architecture = field.contents()
    gemma = architecture == "gemma3"

    def setting(name: str, default: Any = None) -> Any:
        field = reader.get_field(f"{architecture}.{name}")
        assert field is not None or default is not None, name
        return default if field is None else field.contents()

    def weight(name: str) -> Array:
        tensor = tensors[name if name.endswith(".bias") else f"{name}.weight"]
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        in_layer = name.startswith("blk.") and values.ndim == 2
        return values.astype(weight_type if in_layer else np.float64).astype(np.float64)

    heads, kv_heads = setting("attention.head_count"), setting("attention.head_count_kv")
    eps = setting("attention.layer_norm_rms_epsilon")
    hidden = setting("embedding_length")
    head_size = setting("attention.key_length", hidden // heads)
    scale = setting("attention.scale", head_size**-0.5)
    window = setting("attention.sliding_window", len(ids))
    count = len(ids)

    def norm(x: Array, name: str, optional: bool = False) -> Array:
        if optional and f"{name}.weight" not in tensors:
            return x
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight(name)

    def rope(x: Array, frequencies: Array) -> Array:
        """(count, heads, head_size) turned."""
        rotation = np.exp(1j * np.arange(count)[:, None] * frequencies)[:, None]
        if architecture in _PAIRS:
            pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * rotation
            return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)
        pairs = (x[..., : head_size // 2] + 1j * x[..., head_size // 2 :]) * rotation
        return np.concatenate([pairs.real, pairs.imag], -1)

    powers = -np.arange(0, head_size, 2) / head_size
    usual = setting("rope.freq_base") ** powers / setting("rope.scaling.factor", 1.0)
    if "rope_freqs.weight" in tensors:
        usual = usual / weight("rope_freqs")
    of_local_layers = setting("rope.freq_base_swa", 1e4) ** powers
    back = np.arange(count)[:, None] - np.arange(count)

    def attention(h: Array, block: str, layer: int) -> Array:
        local = gemma and (layer + 1) % 6 != 0
        q, k, v = (h @ weight(f"{block}.attn_{name}").T for name in "qkv")
        if f"{block}.attn_q.bias" in tensors:
            q, k, v = (x + weight(f"{block}.attn_{name}.bias") for x, name in zip((q, k, v), "qkv", strict=True))
        q = norm(q.reshape(count, heads, head_size), f"{block}.attn_q_norm", optional=True)
        k = norm(k.reshape(count, kv_heads, head_size), f"{block}.attn_k_norm", optional=True)
        if architecture != "smollm3" or (layer + 1) % 4 != 0:
            q, k = (rope(x, of_local_layers if local else usual) for x in (q, k))
        k, v = (x.reshape(count, kv_heads, head_size).astype(kv_type).astype(np.float64) for x in (k, v))
        k, v = (np.repeat(values, heads // kv_heads, axis=1) for values in (k, v))
        unseen = (back < 0) | (back >= (window if local or not gemma else count))
        scores = np.einsum("ihd,jhd->hij", q, k) * scale + np.where(unseen, -np.inf, 0.0)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v).reshape(count, -1)

    def activation(x: Array) -> Array:
        if gemma:
            return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
        return x / (1 + np.exp(-x))

    embeddings = weight("token_embd")
    x = embeddings[list(ids)] * (hidden**0.5 if gemma else 1.0)
    for layer in range(setting("block_count")):
        block = f"blk.{layer}"
        attended = attention(norm(x, f"{block}.attn_norm"), block, layer) @ weight(f"{block}.attn_output").T
        x = x + norm(attended, f"{block}.post_attention_norm", optional=True)
        h = norm(x, f"{block}.ffn_norm")
        gated = activation(h @ weight(f"{block}.ffn_gate").T) * (h @ weight(f"{block}.ffn_up").T)
        x = x + norm(gated @ weight(f"{block}.ffn_down").T, f"{block}.post_ffw_norm", optional=True)
    head = weight("output") if "output.weight" in tensors else embeddings
    return norm(x, "output_norm") @ head.T
