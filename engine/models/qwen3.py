"""Qwen 3: Llama's layers with norms of the heads of q and k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.models import blocks
from engine.models.architecture import HostTensors
from engine.models.blocks import Block, head
from engine.models.config import Geometry, Metadata
from engine.models.rope import linear_factor, stated_frequencies
from engine.program.activations import Activations
from engine.program.nodes import Node
from engine.weights.load import TensorSpec, Weights

__all__ = ["ARCHITECTURE", "geometry", "head", "layers", "rope_frequencies", "tensors"]

ARCHITECTURE = "qwen3"
_BLOCK = Block(head_norm=True)


def geometry(file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
    """See Architecture."""
    meta = Metadata(file_name, values, ARCHITECTURE)
    blocks.refuse_windows(meta)
    return blocks.geometry(meta, tensors, _BLOCK, rope_halves=True)


def tensors(g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
    """See Architecture."""
    return blocks.tensors(g, present, _BLOCK, (0,) * g.layers)


def rope_frequencies(g: Geometry, values: Mapping[str, Any], host: HostTensors) -> Sequence[npt.NDArray[np.float64]]:
    """See Architecture. One table."""
    meta = Metadata("", values, ARCHITECTURE)
    return (stated_frequencies(meta, g.rotated) / linear_factor(meta),)


def layers(g: Geometry, weights: Weights, a: Activations) -> list[Node]:
    """See Architecture."""
    return blocks.layers(g, weights, a, _BLOCK, (0,) * g.layers)
