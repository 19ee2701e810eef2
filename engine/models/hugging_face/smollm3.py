"""SmolLM3 checkpoints: llamas of which every fourth layer has no RoPE."""

from __future__ import annotations

from typing import Any

from engine.models.hugging_face import llama
from engine.models.hugging_face.config import Config
from engine.models.hugging_face.rope import Rope
from engine.models.hugging_face.rules import Conversion, Values, shape_keys

ARCHITECTURE = "smollm3"
MODEL_TYPES = ("smollm3",)
TIED = True
LAYER_TENSORS = llama.LAYER_TENSORS
_NO_ROPE_INTERVAL = 4  # of every GGUF file, which has no key for it


def metadata(config: Config) -> dict[str, Any]:
    """See Rules."""
    config.require("hidden_act", "silu", default="silu")
    config.require("use_sliding_window", False, default=False)
    config.require("no_rope_layer_interval", _NO_ROPE_INTERVAL, default=_NO_ROPE_INTERVAL)
    layers = config.positive("num_hidden_layers")
    stated = config.get("no_rope_layers")
    if stated is not None and not _is_usual(stated, layers):
        raise config.error("no_rope_layers", f"0 for every {_NO_ROPE_INTERVAL}th layer and 1 for the others")
    rope = Rope(config, 2000000.0)
    return shape_keys(config) | rope.keys() | {"rope.dimension_count": config.head_size}


def _is_usual(stated: object, layers: int) -> bool:
    return (
        isinstance(stated, list)
        and len(stated) >= layers
        and stated[:layers] == [int((i + 1) % _NO_ROPE_INTERVAL != 0) for i in range(layers)]
    )


def conversion(config: Config, name: str) -> Conversion:
    """See Rules."""
    return llama.conversion(config, name)


def added_tensors(config: Config) -> dict[str, Values]:
    """See Rules."""
    return {}
