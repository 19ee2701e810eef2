"""What an architecture offers; ``engine.models`` lists them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from engine.models.config import Geometry
from engine.program.activations import Activations
from engine.program.nodes import Node
from engine.weights.load import TensorSpec, Weights

HostTensors = Mapping[str, npt.NDArray[np.float32]]


class Architecture(Protocol):
    """A module of ``engine.models``, or an object in one. Names of metadata keys and tensors are GGUF's."""

    ARCHITECTURE: str  # GGUF's general.architecture

    def geometry(self, file_name: str, values: Mapping[str, Any], tensors: Mapping[str, Any]) -> Geometry:
        """The model's shape. Raise EngineError where the header is incomplete, absurd or beyond the architecture."""

    def tensors(self, g: Geometry, present: Mapping[str, Any]) -> list[TensorSpec]:
        """Every tensor the model needs."""

    def rope_frequencies(
        self, g: Geometry, values: Mapping[str, Any], host: HostTensors
    ) -> Sequence[npt.NDArray[np.float64]]:
        """Of each RoPE table that nodes refer to by number, the radians a position: float64 (rotated / 2,).

        ``values`` is the metadata, ``host`` the tensors that the specs kept on the host.
        """

    def layers(self, g: Geometry, weights: Weights, a: Activations) -> list[Node]:
        """Embedding and all layers; the residual stream is left in ``a.x``."""

    def head(self, g: Geometry, weights: Weights, a: Activations) -> list[Node]:
        """From the last token's residual stream ``a.last`` to ``a.logits``."""
