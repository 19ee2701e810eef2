"""SmolLM3: Llama's layers, of which every fourth has no RoPE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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

ARCHITECTURE = "smollm3"
_BLOCK = Block()
_NO_ROPE_INTERVAL = 4  # of every file: GGUF has no key for it


def geometry(file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
    """See Architecture."""
    meta = Metadata(file_name, values, ARCHITECTURE)
    blocks.refuse_windows(meta)
    return blocks.geometry(meta, tensors, _BLOCK, rope_halves=False)


def tensors(g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
    """See Architecture."""
    return blocks.tensors(g, present, _BLOCK, _tables(g))


def rope_frequencies(g: Geometry, values: Mapping[str, Any], host: HostTensors) -> Sequence[npt.NDArray[np.float64]]:
    """See Architecture. One table."""
    return (scaled_frequencies(Metadata("", values, ARCHITECTURE), g.rotated),)


def layers(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """See Architecture."""
    return blocks.layers(g, weights, a, _BLOCK, _tables(g))


def _tables(g: Geometry) -> list[int | None]:
    return [0 if (layer + 1) % _NO_ROPE_INTERVAL else None for layer in range(g.layers)]
