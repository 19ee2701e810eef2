"""A float64 forward pass of llama models, straight from the definition: what the engine is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def logits(path: str | Path, ids: Sequence[int], kv_type: type[np.floating[Any]] = np.float64) -> Array:
    """Next-token logits after each of ``ids``, (len(ids), vocabulary) float64.

    Weights are dequantised by gguf; nothing else is rounded but keys and values, to ``kv_type``. Reads the file
    with gguf's own reader, so that it shares no code with the engine.
    """
    reader = gguf.GGUFReader(path)
    tensors = {tensor.name: tensor for tensor in reader.tensors}

    def setting(name: str, default: Any = None) -> Any:
        field = reader.get_field(f"llama.{name}")
        assert field is not None or default is not None, name
        return default if field is None else field.contents()

    def weight(name: str) -> Array:
        tensor = tensors[f"{name}.weight"]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    heads, kv_heads = setting("attention.head_count"), setting("attention.head_count_kv")
    eps = setting("attention.layer_norm_rms_epsilon")
    hidden = setting("embedding_length")
    head_size = setting("attention.key_length", hidden // heads)
    window = setting("attention.sliding_window", len(ids))
    count = len(ids)

    def norm(x: Array, name: str) -> Array:
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight(name)

    frequencies = setting("rope.freq_base") ** (-np.arange(0, head_size, 2) / head_size)
    if "rope_freqs.weight" in tensors:
        frequencies = frequencies / weight("rope_freqs")
    rotation = np.exp(1j * np.arange(count)[:, None] * frequencies)  # (count, head_size / 2)

    def rope(x: Array) -> Array:
        """(count, heads, head_size): pairs (2i, 2i + 1) are rotated, as llama's GGUF files lay them out."""
        pairs = (x[..., 0::2] + 1j * x[..., 1::2]) * rotation[:, None]
        return np.stack([pairs.real, pairs.imag], -1).reshape(x.shape)

    back = np.arange(count)[:, None] - np.arange(count)
    mask = np.where((back < 0) | (back >= window), -np.inf, 0.0)
    embeddings = weight("token_embd")
    x = embeddings[list(ids)]
    for layer in range(setting("block_count")):
        block = f"blk.{layer}"
        h = norm(x, f"{block}.attn_norm")
        q = rope((h @ weight(f"{block}.attn_q").T).reshape(count, heads, head_size))
        k = rope((h @ weight(f"{block}.attn_k").T).reshape(count, kv_heads, head_size))
        v = (h @ weight(f"{block}.attn_v").T).reshape(count, kv_heads, head_size)
        k, v = (values.astype(kv_type).astype(np.float64) for values in (k, v))
        k, v = (np.repeat(values, heads // kv_heads, axis=1) for values in (k, v))
        scores = np.einsum("ihd,jhd->hij", q, k) / head_size**0.5 + mask
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attention = np.einsum("hij,jhd->ihd", scores / scores.sum(-1, keepdims=True), v)
        x = x + attention.reshape(count, -1) @ weight(f"{block}.attn_output").T
        h = norm(x, f"{block}.ffn_norm")
        gate = h @ weight(f"{block}.ffn_gate").T
        up = h @ weight(f"{block}.ffn_up").T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ weight(f"{block}.ffn_down").T
    head = weight("output") if "output.weight" in tensors else embeddings
    return norm(x, "output_norm") @ head.T
