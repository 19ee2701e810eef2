"""Models whose layers are all alike: one kind of block, RoPE by one table, no window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.models import blocks
from engine.models.architecture import HostTensors
from engine.models.blocks import Block
from engine.models.config import Geometry, Metadata
from engine.models.rope import scaled_frequencies
from engine.program.activations import Activations
from engine.program.nodes import Node
from engine.weights.load import TensorSpec, Weights


class Uniform:
    """An Architecture of such models; ``rope_halves`` is Geometry's."""

    def __init__(self, architecture: str, block: Block, *, rope_halves: bool) -> None:
        """Keep what makes it this one; ``architecture`` is GGUF's name."""
        self.ARCHITECTURE = architecture
        self._block, self._rope_halves = block, rope_halves

    def geometry(self, file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
        """See Architecture."""
        meta = Metadata(file_name, values, self.ARCHITECTURE)
        blocks.refuse_windows(meta)
        return blocks.geometry(meta, tensors, self._block, rope_halves=self._rope_halves)

    def tensors(self, g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
        """See Architecture."""
        return blocks.tensors(g, present, self._block, (0,) * g.layers)

    def rope_frequencies(
        self, g: Geometry, values: Mapping[str, Any], host: HostTensors
    ) -> Sequence[npt.NDArray[np.float64]]:
        """See Architecture. One table."""
        return (scaled_frequencies(Metadata("", values, self.ARCHITECTURE), g.rotated),)

    def layers(self, g: Geometry, weights: Weights, a: Activations) -> list[Node]:
        """See Architecture."""
        return blocks.layers(g, weights, a, self._block, (0,) * g.layers)

    def head(self, g: Geometry, weights: Weights, a: Activations) -> list[Node]:
        """See Architecture."""
        return blocks.head(g, weights, a)
