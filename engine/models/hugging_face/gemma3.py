"""Gemma 3 checkpoints. The larger ones' config.json leaves out the defaults of transformers' Gemma3TextConfig."""

from __future__ import annotations

from typing import Any

from engine.models.hugging_face.config import Config
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

ARCHITECTURE = "gemma3"
MODEL_TYPES = ("gemma3", "gemma3_text")
TIED = True
LAYER_TENSORS = {
    **ATTENTION,
    **QK_NORM,
    **FEED_FORWARD,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_DEFAULTS = {
    "vocab_size": 262208,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131072,
}
_PLUS_ONE = Conversion(change=plus_one)


def metadata(config: Config) -> dict[str, Any]:
    """See Rules. ``attention.scale`` is there where it is not the head size's root, as GGUF's reader takes it to be."""
    config = config.with_defaults(_DEFAULTS)
    config.require("hidden_activation", "gelu_pytorch_tanh", default="gelu_pytorch_tanh")
    config.require("use_bidirectional_attention", False, default=False)
    config.require("attn_logit_softcapping", None)
    config.require("final_logit_softcapping", None)
    keys = shape_keys(config) | Rope(config, 1000000.0, "full_attention").keys()
    keys["rope.freq_base_swa"] = _local_theta(config)
    keys["attention.sliding_window"] = config.positive("sliding_window", 4096)
    keys["attention.sliding_window_pattern"] = interval(
        config, config.positive("sliding_window_pattern", 6), "sliding_attention", "full_attention"
    )
    scalar = config.number("query_pre_attn_scalar", 256)
    if scalar <= 0:
        raise config.error("query_pre_attn_scalar", "above 0")
    if scalar != config.head_size:
        keys["attention.scale"] = scalar**-0.5
    return keys


def _local_theta(config: Config) -> float:
    settings = config.part("rope_parameters")
    local = settings.part("sliding_attention") if settings is not None else None
    if local is None:
        return config.number("rope_local_base_freq", 10000.0)
    local.require("rope_type", "default", default="default")
    return local.number("rope_theta", 10000.0)


def conversion(config: Config, name: str) -> Conversion:
    """See Rules."""
    return _PLUS_ONE if name.endswith("norm.weight") else UNCHANGED


def added_tensors(config: Config) -> dict[str, Values]:
    """See Rules."""
    return {}
