"""Prompt processing: chunks of ids through matrix kernels, each in one submission."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.decode.state import NO_ID, STATE_BYTES, initial_state
from engine.models.architecture import Architecture
from engine.models.config import Geometry
from engine.program.activations import ActivationBuffers, Activations
from engine.program.fusion import PREFILL_PASSES, fuse
from engine.program.lower import Buffers, Lowering
from engine.program.op import Op
from engine.program.schedule import Scheduler
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels
from engine.weights.load import Weights

CPU_CHUNK_TOKENS = 32
GPU_CHUNK_TOKENS = 512
_FIRST_CHUNK_TOKENS = 16  # and the fewest: with less, the matrix kernels take as long a chunk
# A chunk is one submission: long enough to read the weights seldom, short enough that a cancel is heard in time and
# that no desktop GPU's watchdog bites.
_SHORT_S, _LONG_S = 0.1, 0.25
_KEPT_RECORDINGS = 4


def chunk_tokens(row_kernels: bool) -> int:
    """The largest prompt chunk on this kind of device."""
    return CPU_CHUNK_TOKENS if row_kernels else GPU_CHUNK_TOKENS


class Prefill:
    """Feeds prompt chunks. Every token's arithmetic is its own, so chunk boundaries never change a bit.

    ``chunk_tokens`` is how long the next chunk should be at most: it grows while chunks are short in time.
    """

    def __init__(
        self,
        model: Architecture,
        geometry: Geometry,
        weights: Weights,
        activations: ActivationBuffers,
        kernels: Kernels,
        memory: Memory,
        buffers: Buffers,
        context: int,
    ) -> None:
        self._model, self._g, self._weights = model, geometry, weights
        self._activations, self._kernels, self._memory = activations, kernels, memory
        self._buffers, self._context = buffers, context
        self._most_tokens = chunk_tokens(kernels.device.row_kernels)
        self.chunk_tokens = _FIRST_CHUNK_TOKENS
        self._image = memory.allocate(STATE_BYTES, "upload")  # of the state, for the chunk to be fed
        self._recorded: dict[tuple[int, bool], CommandBuffer] = {}  # by (tokens, last), the latest used at the end
        self.end_ns = 0.0  # device time at which the last chunk ended

    def feed(self, ids: Sequence[int], position: int, last: bool, mark: int = NO_ID) -> None:
        """Put one chunk's ids into the KV cache from ``position``; ``last`` computes the logits after it too.

        ``mark``: the token of the chunk, if any, after which a recurrent state is kept in ``Cache.marked``.
        """
        self._memory.write(self._buffers.ids, np.asarray(ids, np.uint32))
        self._memory.write(self._image, np.frombuffer(initial_state(position, 0, (), mark), np.uint8))
        commands = self._commands(len(ids), last)
        commands.submit()
        commands.wait()
        start_ns, self.end_ns = commands.ticks_ns()
        self._adapt(len(ids), (self.end_ns - start_ns) / 1e9)

    def _adapt(self, tokens: int, seconds: float) -> None:
        if tokens == self.chunk_tokens and seconds < _SHORT_S:
            growth = 4 if seconds < _SHORT_S / 4 else 2
            self.chunk_tokens = min(growth * tokens, self._most_tokens)
        elif seconds > _LONG_S:
            self.chunk_tokens = max(_FIRST_CHUNK_TOKENS, min(self.chunk_tokens, tokens) // 2)

    def _commands(self, tokens: int, last: bool) -> CommandBuffer:
        """A chunk's commands: where it stands is in the state, so that full chunks are recorded once."""
        commands = self._recorded.pop((tokens, last), None)
        if commands is None:
            full = len(self._recorded) == _KEPT_RECORDINGS
            commands = self._recorded.pop(next(iter(self._recorded))) if full else CommandBuffer(self._kernels.device)
            ops, barriers = Scheduler().schedule(self._ops(tokens, last), "needed")
            commands.begin()
            commands.load(self._image, self._buffers.state)
            commands.record(ops, barriers)
            commands.end()
        self._recorded[tokens, last] = commands
        return commands

    def _ops(self, tokens: int, last: bool) -> list[Op]:
        views = Activations(self._activations, tokens)
        lowering = Lowering(self._kernels, self._g, self._buffers, self._context, tokens, prefill=True)
        nodes = fuse(self._model.layers(self._g, self._weights, views), PREFILL_PASSES, {}, {})
        if last:
            nodes += self._model.head(self._g, self._weights, views)
        return lowering.lower(nodes)

    def logits(self) -> npt.NDArray[np.float32]:
        """float32 (vocab,): the logits after the last chunk fed with ``last``."""
        return self._memory.read(self._activations.logits).view(np.float32)

    def close(self) -> None:
        """Destroy the command buffers."""
        for commands in self._recorded.values():
            commands.close()
