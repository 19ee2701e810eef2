"""Llama 1 to 3, SmolLM2 and Mistral checkpoints."""

from __future__ import annotations

from typing import Any

from engine.models.hugging_face.config import Config
from engine.models.hugging_face.rope import Rope
from engine.models.hugging_face.rules import (
    ATTENTION,
    FEED_FORWARD,
    UNCHANGED,
    Conversion,
    Values,
    halves_to_pairs,
    shape_keys,
)

ARCHITECTURE = "llama"
MODEL_TYPES = ("llama", "mistral")
TIED = False
LAYER_TENSORS = {**ATTENTION, **FEED_FORWARD, "post_attention_layernorm": "ffn_norm"}
_THETA = 10000.0


def metadata(config: Config) -> dict[str, Any]:
    """See Rules."""
    config.require("hidden_act", "silu", default="silu")
    keys = shape_keys(config) | Rope(config, _THETA).keys() | {"rope.dimension_count": config.head_size}
    if config.get("model_type") == "mistral" and config.get("sliding_window") is not None:
        keys["attention.sliding_window"] = config.positive("sliding_window")
    return keys


def conversion(config: Config, name: str) -> Conversion:
    """See Rules. GGUF's llamas rotate pairs of neighbours."""
    heads = config.heads()
    if name.startswith("attn_q."):
        return Conversion(rows=halves_to_pairs(heads, config.head_size))
    if name.startswith("attn_k."):
        return Conversion(rows=halves_to_pairs(config.heads("num_key_value_heads", heads), config.head_size))
    return UNCHANGED


def added_tensors(config: Config) -> dict[str, Values]:
    """See Rules."""
    divisors = Rope(config, _THETA).divisors(config.head_size)
    return {} if divisors is None else {"rope_freqs.weight": divisors}
