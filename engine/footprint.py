"""What an engine will allocate for a model, known before it does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from engine.models.architecture import Architecture
from engine.models.config import Geometry
from engine.prefill import chunk_tokens
from engine.program import sample
from engine.program.activations import ActivationBuffers
from engine.setup import allocate_buffers
from engine.snapshots import snapshot_bytes
from engine.vulkan.counted import CountedMemory
from engine.weights.gguf import TensorInfo
from engine.weights.load import TensorSpec, allocate_weights

# Beside what is counted: step and read-back buffers, the copy that measurements keep of a token's state, pipelines.
_SPARE_BYTES = 64 << 20


class Footprint:
    """Device memory of one model: ``weight_bytes`` as they lie there, ``bytes_for(context)`` in all.

    ``parameters`` counts the elements of its tensors, ``layer_parameters`` those of its layers' tensors.
    """

    def __init__(
        self,
        model: Architecture,
        geometry: Geometry,
        metadata: Mapping[str, Any],
        tensors: Mapping[str, TensorInfo],
        specs: list[TensorSpec],
        row_kernels: bool,
    ) -> None:
        """Count the weights. Raise EngineError for a type or shape the kernels do not take."""
        self._weights = CountedMemory()
        allocate_weights(tensors, specs, self._weights, "cpu" if row_kernels else "gpu")
        self._geometry = geometry
        self._frequencies = model.rope_frequencies(geometry, metadata, {})
        self._chunk_tokens = chunk_tokens(row_kernels)
        self.weight_bytes = self._weights.device_bytes
        self.parameters = sum(math.prod(spec.shape) for spec in specs)
        self.layer_parameters = sum(math.prod(spec.shape) for spec in specs if spec.name.startswith("blk."))

    def bytes_for(self, context: int) -> int:
        """Device memory, with all that goes with ``context`` tokens."""
        g, memory = self._geometry, self._weights.copy()
        allocate_buffers(memory, g, context, self._frequencies, self._chunk_tokens)
        ActivationBuffers(memory, g, self._chunk_tokens)
        memory.allocate(sample.scratch_bytes(g.vocab))
        return memory.device_bytes + g.recurrent_bytes + snapshot_bytes(g) + _SPARE_BYTES

    def largest_context(self, free_bytes: int, most: int) -> int:
        """The largest context up to ``most`` tokens that ``free_bytes`` hold; 0 where none does."""
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if self.bytes_for(middle) <= free_bytes:
                low = middle
            else:
                high = middle - 1
        return low
