"""Qwen 2 and 2.5 checkpoints."""

from __future__ import annotations

from typing import Any

from engine.models.hugging_face.config import Config
from engine.models.hugging_face.rope import Rope
from engine.models.hugging_face.rules import ATTENTION, FEED_FORWARD, UNCHANGED, Conversion, Values, shape_keys

ARCHITECTURE = "qwen2"
MODEL_TYPES = ("qwen2",)
TIED = False
LAYER_TENSORS = {**ATTENTION, **FEED_FORWARD, "post_attention_layernorm": "ffn_norm"}


def metadata(config: Config) -> dict[str, Any]:
    """See Rules."""
    config.require("hidden_act", "silu", default="silu")
    config.require("use_sliding_window", False, default=False)
    return shape_keys(config) | Rope(config, 10000.0).keys()


def conversion(config: Config, name: str) -> Conversion:
    """See Rules."""
    return UNCHANGED


def added_tensors(config: Config) -> dict[str, Values]:
    """See Rules."""
    return {}
