"""From a Hugging Face folder to a GGUF file by llama.cpp's conversion rules, for tests.

Names come from gguf's own tensor map and tensors are read whole, so that nothing is shared with the engine's reading of
such folders: each checks the other. Rules: conversion/*.py of https://github.com/ggml-org/llama.cpp.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import safetensors
from gguf import GGMLQuantizationType as Type

MODELS = Path(__file__).parents[1] / "data" / "models"
ARCHITECTURES = {
    "llama": gguf.MODEL_ARCH.LLAMA,
    "mistral": gguf.MODEL_ARCH.LLAMA,
    "qwen2": gguf.MODEL_ARCH.QWEN2,
    "qwen3": gguf.MODEL_ARCH.QWEN3,
    "qwen3_5_text": gguf.MODEL_ARCH.QWEN35,
    "gemma3_text": gguf.MODEL_ARCH.GEMMA3,
    "smollm3": gguf.MODEL_ARCH.SMOLLM3,
}
Array = np.ndarray[Any, np.dtype[np.float32]]


def hf_to_gguf(folder: Path, path: Path, matrices: Mapping[str, Type] | Type = Type.F32) -> Path:
    """Write ``folder``'s model to ``path`` and return it; without a tokenizer.

    ``matrices``: the type of the matrices, by short name ("attn_q", "token_embd") with "*" for the others; one that
    ``gguf.quants`` can make. Vectors and the convolution stay F32.
    """
    config = json.loads((folder / "config.json").read_text())
    kind = config["model_type"]
    architecture = ARCHITECTURES[kind]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[architecture])
    writer.add_name(folder.name)
    writer.add_tokenizer_model("none")
    _add_shape(writer, config, kind)
    types = matrices if isinstance(matrices, Mapping) else {"*": matrices}
    names = gguf.get_tensor_name_map(architecture, config["num_hidden_layers"])
    for name, values in read_tensors(folder).items():
        stem, _, suffix = name.rpartition(".")
        if name.endswith("A_log"):
            mapped = names.get_name(name)
        elif name.endswith("dt_bias"):
            mapped = f"{names.get_name(name.replace('dt_bias', 'dt_proj'))}.bias"
        else:
            mapped = f"{names.get_name(stem)}.{suffix}"
        assert mapped is not None and not mapped.startswith("None"), name
        values = _convert(name, values, config, kind)
        short = mapped.split(".")[-2] if "." in mapped else mapped
        chosen = types.get(short, types.get("*", Type.F32))
        if values.ndim == 1 or short == "ssm_conv1d" or chosen == Type.F32:
            writer.add_tensor(mapped, np.ascontiguousarray(values))
        else:
            writer.add_tensor(mapped, gguf.quants.quantize(np.ascontiguousarray(values), chosen), raw_dtype=chosen)
    rope = config.get("rope_scaling") or {}
    if rope.get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", _llama3_divisors(config, rope))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def reference(folder: Path) -> tuple[list[int], Array]:
    """The ids and transformers' logits (tokens, vocabulary) of a folder of tests/data/models."""
    with np.load(folder / "reference.npz") as saved:
        return saved["ids"].tolist(), saved["logits"]


def read_tensors(folder: Path) -> dict[str, Array]:
    """Every tensor of the folder's safetensors as float32."""
    tensors = {}
    for path in sorted(folder.glob("*.safetensors")):
        for name, item in safetensors.deserialize(path.read_bytes()):
            raw = bytes(item["data"])
            if item["dtype"] == "BF16":
                values = (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
            else:
                values = np.frombuffer(raw, {"F16": "<f2", "F32": "<f4"}[item["dtype"]]).astype(np.float32)
            tensors[name] = values.reshape(item["shape"])
    return tensors


def _head_size(config: Mapping[str, Any]) -> int:
    return int(config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])


def _add_shape(writer: gguf.GGUFWriter, config: Mapping[str, Any], kind: str) -> None:
    rope = config.get("rope_parameters") or {}
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(float(config.get("rope_theta") or rope["rope_theta"]))
    writer.add_vocab_size(config["vocab_size"])
    if "head_dim" in config:
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if kind in ("llama", "mistral", "smollm3"):
        writer.add_rope_dimension_count(_head_size(config))
    if kind in ("mistral", "gemma3_text"):
        writer.add_sliding_window(config["sliding_window"])
    if kind == "gemma3_text":
        if config["query_pre_attn_scalar"] != config["head_dim"]:  # else llama.cpp's default, and no key
            writer.add_attention_scale(config["query_pre_attn_scalar"] ** -0.5)
        if config.get("rope_scaling"):
            writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
            writer.add_rope_scaling_factor(config["rope_scaling"]["factor"])
    if kind == "qwen3_5_text":
        writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
        writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
        writer.add_ssm_state_size(config["linear_key_head_dim"])
        writer.add_ssm_group_count(config["linear_num_key_heads"])
        writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
        writer.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
        writer.add_full_attention_interval(config["full_attention_interval"])


def _convert(name: str, values: Array, config: Mapping[str, Any], kind: str) -> Array:
    if kind in ("llama", "mistral", "smollm3"):
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if f".{part}." in name:  # rotated halves become rotated pairs
                halves = values.reshape(config[heads], 2, -1, *values.shape[1:])
                return halves.swapaxes(1, 2).reshape(values.shape)
    if kind in ("gemma3_text", "qwen3_5_text") and name.endswith("norm.weight") and "linear_attn.norm" not in name:
        return values + np.float32(1)
    if "linear_attn" not in name:
        return values
    if name.endswith("A_log"):
        values = -np.exp(values)
    if name.endswith("conv1d.weight"):
        values = values[:, 0]
    return _tile_value_heads(name, values, config)


def _tile_value_heads(name: str, values: Array, config: Mapping[str, Any]) -> Array:
    """Value head j of the file uses key head j % n; of the folder, key head j // (values a key)."""
    keys, count = config["linear_num_key_heads"], config["linear_num_value_heads"]
    size = config["linear_value_head_dim"]
    order = np.arange(count).reshape(keys, -1).T.reshape(-1)
    elements = (order[:, None] * size + np.arange(size)).reshape(-1)
    key_rows = 2 * keys * config["linear_key_head_dim"]
    if ".in_proj_qkv." in name or ".conv1d." in name:
        return np.concatenate([values[:key_rows], values[key_rows:][elements]])
    if ".in_proj_z." in name:
        return values[elements]
    if ".out_proj." in name:
        return values[:, elements]
    return values if ".norm." in name else values[order]


def _llama3_divisors(config: Mapping[str, Any], rope: Mapping[str, Any]) -> Array:
    size = _head_size(config)
    original = rope["original_max_position_embeddings"]
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    divisors = []
    for step in range(0, size, 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (step / size)
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(rope["factor"])
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(divisors, np.float32)
