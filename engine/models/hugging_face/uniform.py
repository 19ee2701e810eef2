"""Checkpoints of models whose layers are all alike, with tensors that GGUF files have as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engine.models.hugging_face.config import Config
from engine.models.hugging_face.rope import Rope
from engine.models.hugging_face.rules import (
    ATTENTION,
    FEED_FORWARD,
    UNCHANGED,
    Conversion,
    Values,
    shape_keys,
)


class Uniform:
    """Rules of such models; ``more``: names within a layer besides those of attention and feed-forward."""

    TIED = False

    def __init__(self, architecture: str, more: Mapping[str, str]) -> None:
        """Keep what makes it this one; ``architecture`` is GGUF's name, and config.json's model_type."""
        self.ARCHITECTURE = architecture
        self.MODEL_TYPES = (architecture,)
        self.LAYER_TENSORS = {**ATTENTION, **more, **FEED_FORWARD, "post_attention_layernorm": "ffn_norm"}

    def metadata(self, config: Config) -> dict[str, Any]:
        """See Rules."""
        config.require("hidden_act", "silu", default="silu")
        config.require("use_sliding_window", False, default=False)
        return shape_keys(config) | Rope(config, 10000.0).keys()

    def conversion(self, config: Config, name: str) -> Conversion:
        """See Rules."""
        return UNCHANGED

    def added_tensors(self, config: Config) -> dict[str, Values]:
        """See Rules."""
        return {}
