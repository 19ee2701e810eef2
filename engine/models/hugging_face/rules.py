"""What turns a Hugging Face checkpoint into the metadata and tensors that GGUF has.

Each architecture's file beside this one says what is its own; what they share is here. The rules are those of
llama.cpp's converters: conversion/*.py of https://github.com/ggml-org/llama.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.models.hugging_face.config import Config

Values = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class Conversion:
    """How a tensor's elements move and change; None leaves them as they are.

    Row i of the result is row ``rows[i]`` of the checkpoint's, column i its column ``columns[i]``; ``change`` is then
    applied to the float32 values. ``vector`` says that it is no weight matrix: always float32, never quantised, with
    dimensions of one left out.
    """

    rows: npt.NDArray[np.intp] | None = None
    columns: npt.NDArray[np.intp] | None = None
    change: Callable[[Values], Values] | None = None
    vector: bool = False


UNCHANGED = Conversion()


class Rules(Protocol):
    """A module of this package, or an object in one; ``engine.models.hugging_face`` lists them."""

    @property
    def ARCHITECTURE(self) -> str:
        """GGUF's general.architecture."""

    @property
    def MODEL_TYPES(self) -> tuple[str, ...]:
        """config.json's model_type."""

    @property
    def TIED(self) -> bool:
        """What tie_word_embeddings is where config.json does not say."""

    @property
    def LAYER_TENSORS(self) -> Mapping[str, str]:
        """Names within a layer, the checkpoint's to GGUF's, mostly without .weight or .bias."""

    def metadata(self, config: Config) -> dict[str, Any]:
        """GGUF's keys, without the architecture before them. EngineError for what the engine does not have."""

    def conversion(self, config: Config, name: str) -> Conversion:
        """What happens to the tensor that GGUF calls ``name``, within a layer without the layer's prefix."""

    def added_tensors(self, config: Config) -> dict[str, Values]:
        """Tensors that GGUF has and the checkpoint has not, by GGUF's name."""


ATTENTION = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
}
QK_NORM = {"self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}
FEED_FORWARD = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}
_OUTSIDE_LAYERS = {"embed_tokens": "token_embd", "norm": "output_norm"}

# Parts of multimodal checkpoints, draft layers for speculative decoding, and tables that are worked out anew.
_SKIPPED = re.compile(
    r"(model\.)?(visual|vision_tower|vision_model|multi_modal_projector|audio_tower|embed_vision|embed_audio)\."
    r"|(model\.)?mtp\.|.*\.rotary_emb\.inv_freq$"
)
_PREFIX = re.compile(r"^(model\.language_model\.|language_model\.model\.|language_model\.|model\.)?")


def gguf_name(rules: Rules, name: str) -> str | None:
    """GGUF's name of a checkpoint's tensor; None where it is left out, KeyError where the rules do not know it."""
    if _SKIPPED.match(name):
        return None
    rest = _PREFIX.sub("", name, count=1)
    if rest == "lm_head.weight":
        return "output.weight"
    layer = re.fullmatch(r"layers\.(0|[1-9][0-9]*)\.(.+)", rest)
    table = rules.LAYER_TENSORS if layer else _OUTSIDE_LAYERS
    rest = layer[2] if layer else rest
    prefix = f"blk.{layer[1]}." if layer else ""
    if rest in table:
        return prefix + table[rest]
    stem, _, suffix = rest.rpartition(".")
    if suffix not in ("weight", "bias"):
        raise KeyError(name)
    return f"{prefix}{table[stem]}.{suffix}"


def shape_keys(config: Config) -> dict[str, Any]:
    """The sizes that every architecture states."""
    heads = config.heads()
    return {
        "block_count": config.positive("num_hidden_layers"),
        "context_length": config.positive("max_position_embeddings", 2048),
        "embedding_length": config.positive("hidden_size"),
        "feed_forward_length": config.positive("intermediate_size"),
        "attention.head_count": heads,
        "attention.head_count_kv": config.heads("num_key_value_heads", heads),
        "attention.key_length": config.head_size,
        "attention.value_length": config.head_size,
        "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        "vocab_size": config.positive("vocab_size"),
    }


def halves_to_pairs(heads: int, head_size: int) -> npt.NDArray[np.intp]:
    """The order of the rows of Q or K in which RoPE turns neighbours instead of the two halves of a head."""
    order: npt.NDArray[np.intp] = np.arange(heads * head_size).reshape(heads, 2, -1).swapaxes(1, 2).reshape(-1)
    return order


def plus_one(values: Values) -> Values:
    """Norm weights that are stored as their distance from one."""
    return values + np.float32(1)
