"""Qwen 3.5 checkpoints: Gated DeltaNet layers with a full-attention layer at an interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from engine.models.hugging_face.config import LARGEST_HEAD, Config
from engine.models.hugging_face.layer_types import interval
from engine.models.hugging_face.rope import Rope
from engine.models.hugging_face.rules import (
    ATTENTION,
    FEED_FORWARD,
    QK_NORM,
    UNCHANGED,
    Conversion,
    Values,
    plus_one,
    shape_keys,
)

ARCHITECTURE = "qwen35"
MODEL_TYPES = ("qwen3_5", "qwen3_5_text")
TIED = False
LAYER_TENSORS = {
    **ATTENTION,
    **QK_NORM,
    **FEED_FORWARD,
    "post_attention_layernorm": "post_attention_norm",
    "linear_attn.in_proj_qkv": "attn_qkv",
    "linear_attn.in_proj_z": "attn_gate",
    "linear_attn.in_proj_a": "ssm_alpha",
    "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.norm": "ssm_norm",
    "linear_attn.out_proj": "ssm_out",
}
_DEFAULTS = {
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
}


def metadata(config: Config) -> dict[str, Any]:
    """See Rules."""
    config = config.with_defaults(_DEFAULTS)
    config.require("hidden_act", "silu", default="silu")
    config.require("attn_output_gate", True, default=True)
    rope = Rope(config, 10000.0)
    rotated = rope.settings.number("partial_rotary_factor", config.number("partial_rotary_factor", 0.25))
    if not 0 < rotated <= 1:
        raise config.error("partial_rotary_factor", "above 0 and 1 at most")
    sections = rope.settings.get("mrope_section") or [11, 11, 10]
    if not isinstance(sections, list):
        raise rope.settings.error("mrope_section", "a list of three numbers")
    key_size, value_size = _head_sizes(config)
    return (
        shape_keys(config)
        | rope.keys()
        | {
            "rope.dimension_count": int(config.head_size * rotated),
            "rope.dimension_sections": [*sections, 0],
            "ssm.conv_kernel": config.positive("linear_conv_kernel_dim"),
            "ssm.state_size": key_size,
            "ssm.group_count": config.heads("linear_num_key_heads"),
            "ssm.time_step_rank": config.heads("linear_num_value_heads"),
            "ssm.inner_size": config.heads("linear_num_value_heads") * value_size,
            "full_attention_interval": interval(
                config, config.positive("full_attention_interval", 4), "linear_attention", "full_attention"
            ),
        }
    )


def _head_sizes(config: Config) -> tuple[int, int]:
    """Elements of a linear layer's key heads and value heads."""
    return (
        config.positive("linear_key_head_dim", most=LARGEST_HEAD),
        config.positive("linear_value_head_dim", most=LARGEST_HEAD),
    )


def conversion(config: Config, name: str) -> Conversion:
    """See Rules. Value head j of the result uses key head j % n, of the checkpoint j // (value heads a key head)."""
    if name.endswith("norm.weight"):
        return UNCHANGED if name == "ssm_norm.weight" else Conversion(change=plus_one)
    config = config.with_defaults(_DEFAULTS)
    keys, count = config.heads("linear_num_key_heads"), config.heads("linear_num_value_heads")
    if count % keys:
        raise config.error("linear_num_value_heads", f"a multiple of {keys}, the number of key heads")
    heads = np.arange(count).reshape(keys, -1).T.reshape(-1)
    key_size, size = _head_sizes(config)
    elements = (heads[:, None] * size + np.arange(size)).reshape(-1)
    if name in ("attn_qkv.weight", "ssm_conv1d.weight"):
        before = 2 * keys * key_size  # the rows of all queries and keys
        rows = np.concatenate([np.arange(before), before + elements])
        return Conversion(rows, vector=name == "ssm_conv1d.weight")
    if name == "attn_gate.weight":
        return Conversion(elements)
    if name in ("ssm_alpha.weight", "ssm_beta.weight", "ssm_dt.bias"):
        return Conversion(heads)
    if name == "ssm_a":
        return Conversion(heads, change=lambda values: -np.exp(values))
    if name == "ssm_out.weight":
        return Conversion(columns=elements)
    return UNCHANGED


def added_tensors(config: Config) -> dict[str, Values]:
    """See Rules."""
    return {}
