"""Gemma 3 (text): local layers with a sliding window and global ones, each kind with RoPE of its own.

After llama.cpp's src/models/gemma3.cpp. Norm weights in GGUF have the +1 of Hugging Face's in them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.models import blocks
from engine.models.architecture import HostTensors
from engine.models.blocks import Block, head
from engine.models.config import Geometry, Metadata
from engine.models.rope import scaled_frequencies, stated_frequencies
from engine.program.activations import Activations
from engine.program.nodes import Node
from engine.weights.load import TensorSpec, Weights

__all__ = ["ARCHITECTURE", "geometry", "head", "layers", "rope_frequencies", "tensors"]

ARCHITECTURE = "gemma3"
_BLOCK = Block(head_norm=True, post_norm=True, gelu=True)
_GLOBAL, _LOCAL = 0, 1  # RoPE tables
_27B_LAYERS = 62  # whose queries are scaled by hidden / heads rather than by the head size, and no key says so


def geometry(file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
    """See Architecture."""
    meta = Metadata(file_name, values, ARCHITECTURE)
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        if meta.number(key, 0.0, 1e6, 0.0):
            raise EngineError(f"{file_name}: {ARCHITECTURE}.{key} is set, which is not supported")
    g = blocks.geometry(meta, tensors, _BLOCK, rope_halves=True)
    scale = (g.hidden / g.heads) ** -0.5 if g.layers == _27B_LAYERS else g.head_size**-0.5
    window = meta.integer("attention.sliding_window", 1, 1 << 24)
    return replace(
        g,
        windows_tokens=tuple(window if local else 0 for local in _local_layers(meta, g.layers)),
        attention_scale=meta.number("attention.scale", 1e-6, 1e6, scale),
    )


def _local_layers(meta: Metadata, layers: int) -> list[bool]:
    """Which layers have the window: all but every n-th, or as the file states for each."""
    stated = meta.values.get(f"{ARCHITECTURE}.attention.sliding_window_pattern")
    if isinstance(stated, (list, tuple, np.ndarray)):
        if len(stated) != layers:
            raise EngineError(
                f"{meta.file_name}: {ARCHITECTURE}.attention.sliding_window_pattern is of {len(stated)} layers, "
                f"the model has {layers}"
            )
        return [bool(local) for local in stated]
    interval = meta.integer("attention.sliding_window_pattern", 1, 1024, 6)
    return [(layer + 1) % interval != 0 for layer in range(layers)]


def tensors(g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
    """See Architecture."""
    return blocks.tensors(g, present, _BLOCK, _tables(g))


def rope_frequencies(g: Geometry, values: Mapping[str, Any], host: HostTensors) -> Sequence[npt.NDArray[np.float64]]:
    """See Architecture. The global layers' table, then the local ones', which no scaling is for."""
    meta = Metadata("", values, ARCHITECTURE)
    everywhere = scaled_frequencies(meta, g.rotated, default_theta=1e6)
    return everywhere, stated_frequencies(meta, g.rotated, "rope.freq_base_swa")


def layers(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """See Architecture."""
    return blocks.layers(g, weights, a, _BLOCK, _tables(g), embedding_scale=g.hidden**0.5)


def _tables(g: Geometry) -> list[int | None]:
    return [_LOCAL if window else _GLOBAL for window in g.windows_tokens]
