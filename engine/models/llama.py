"""The llama architecture: Llama 1 to 3, SmolLM2, Mistral, and what is built like them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.models import blocks
from engine.models.architecture import HostTensors
from engine.models.blocks import Block, head
from engine.models.config import Geometry, Metadata
from engine.models.rope import scaled_frequencies
from engine.program.activations import Activations
from engine.program.nodes import Node
from engine.weights.load import TensorSpec, Weights

__all__ = ["ARCHITECTURE", "geometry", "head", "layers", "rope_frequencies", "tensors"]

ARCHITECTURE = "llama"
_BLOCK = Block()
_DIVISORS = "rope_freqs.weight"  # Llama 3.x divides its frequencies by them


def geometry(file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
    """See Architecture. Mistral's sliding window, where a file states one, is that of every layer."""
    meta = Metadata(file_name, values, ARCHITECTURE)
    g = blocks.geometry(meta, tensors, _BLOCK, rope_halves=False, others=(_DIVISORS,))
    window = meta.integer("attention.sliding_window", 0, 1 << 24, 0)
    return replace(g, windows_tokens=(window,) * g.layers)


def tensors(g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
    """See Architecture."""
    specs = blocks.tensors(g, present, _BLOCK, (0,) * g.layers)
    return [*specs, TensorSpec(_DIVISORS, (g.rotated // 2,), host=True)] if _DIVISORS in present else specs


def rope_frequencies(g: Geometry, values: Mapping[str, Any], host: HostTensors) -> Sequence[npt.NDArray[np.float64]]:
    """See Architecture. One table."""
    found = scaled_frequencies(Metadata("", values, ARCHITECTURE), g.rotated)
    divisors = host.get(_DIVISORS)
    return (found if divisors is None else found / divisors,)


def layers(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """See Architecture."""
    return blocks.layers(g, weights, a, _BLOCK, (0,) * g.layers)
