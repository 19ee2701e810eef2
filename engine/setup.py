"""What an engine allocates and builds before its first token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from engine.cache import Cache
from engine.decode.program import ProgramBuilder, Slot
from engine.decode.state import STATE_BYTES
from engine.models.architecture import Architecture
from engine.models.config import Geometry
from engine.program import matrix_kernels, sample
from engine.program.activations import Activations
from engine.program.attend_division import LEAST_RANGE_TOKENS
from engine.program.delta import delta_kernels
from engine.program.lower import Buffers, Lowering
from engine.program.matrix_tiles import X_PARTS
from engine.program.nodes import Node
from engine.program.op import Op
from engine.program.operands import Float16
from engine.program.small_kernels import rope_defines, small_kernels
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Defines, KernelSet
from engine.weights.gguf import TensorInfo
from engine.weights.load import TensorSpec, Weights
from engine.weights.placement import Placement

_FLOAT_BYTES = 4
_TABLE_STEP = 16_384  # positions

# the ops that sample into a slot, the position first growing by the number; with a "head_keys" node they compute the
# logits too
Sampler = Callable[[Slot, int, Node | None], list[Op]]


def kernel_jobs(
    kernels: KernelSet, geometry: Geometry, tensors: Mapping[str, TensorInfo], specs: list[TensorSpec]
) -> list[tuple[str, Defines, bool]]:
    """Every kernel a model needs, for ``Kernels.prepare``."""
    jobs: list[tuple[str, Defines, bool]] = [("nothing", {}, True)]
    for prefill in (False, True):
        jobs += [(choice.name, choice.defines, False) for choice in small_kernels(kernels, geometry, prefill).values()]
        jobs += [(*choice, False) for choice in delta_kernels(kernels, geometry, prefill).values()]
    placement = Placement(matrix_kernels.layout(kernels), kernels.device.most_slice_bytes)
    jobs += matrix_kernels.required_kernels(kernels, placement.matrix_uses(tensors, specs), rope_defines(geometry))
    jobs += sample.required_kernels(kernels)
    unique = {(name, stamped, *sorted(defines.items())): (name, defines, stamped) for name, defines, stamped in jobs}
    return list(unique.values())


def allocate_buffers(
    memory: Memory, g: Geometry, context: int, frequencies: Sequence[npt.NDArray[np.float64]], chunk_tokens: int
) -> Buffers:
    """State, KV cache, RoPE tables and attention's partial results for ``context`` tokens.

    ``frequencies`` are radians a position, a table each, float64 (rotated / 2,). Raise EngineError where memory is out.
    """
    tables = tuple(_rope_table(memory, context, item) for item in frequencies)
    splits = -(-context // LEAST_RANGE_TOKENS)
    width = -(-max(g.hidden, g.q_size, g.ffn, *(size for _, size in g.extra)) // 32) * 32
    arrivals = memory.allocate(g.heads * 4)
    memory.write(arrivals, np.zeros(g.heads, np.uint32))
    memory.flush()
    return Buffers(
        state=memory.allocate(STATE_BYTES),
        ids=memory.allocate(chunk_tokens * 4, "upload"),
        rope_tables=tables,
        cache=Cache(memory, g, context),
        parts=memory.allocate(splits * g.q_size * _FLOAT_BYTES),
        sums=memory.allocate(splits * g.heads * 2 * _FLOAT_BYTES),
        arrivals=arrivals,
        float16=Float16(
            memory.allocate(chunk_tokens * 2 * X_PARTS * width), memory.allocate(chunk_tokens * _FLOAT_BYTES)
        ),
    )


def _rope_table(memory: Memory, context: int, frequencies: npt.NDArray[np.float64]) -> Slice:
    """Cosine and sine by position: float32 (context, rotated / 2, 2), made a piece at a time."""
    row_bytes = frequencies.size * 2 * _FLOAT_BYTES
    table = memory.allocate(context * row_bytes, constant=True)
    for start in range(0, context if memory.backed else 0, _TABLE_STEP):
        positions = np.arange(start, min(start + _TABLE_STEP, context), dtype=np.float64)
        angles = positions[:, None] * frequencies[None, :]
        rows = np.stack((np.cos(angles), np.sin(angles)), axis=-1).astype(np.float32)
        memory.write(table.part(start * row_bytes, rows.nbytes), rows)
    return table


def sampler(memory: Memory, kernels: KernelSet, vocab: int, activations: Activations, buffers: Buffers) -> Sampler:
    """What chooses an id from ``activations.logits``. Raise EngineError where memory is out."""
    scratch = memory.allocate(sample.scratch_bytes(vocab))

    def ops(slot: Slot, advance: int, head: Node | None) -> list[Op]:
        step, readback = slot
        return sample.sample(kernels, activations.logits, vocab, step, buffers.state, readback, scratch, advance, head)

    return ops


def decode_builder(
    model: Architecture, weights: Weights, activations: Activations, lowering: Lowering, sampling: Sampler
) -> ProgramBuilder:
    """The builder of one token's programs; ``activations`` are those of one token."""
    geometry = lowering.g
    return ProgramBuilder(
        lambda: model.layers(geometry, weights, activations) + model.head(geometry, weights, activations),
        lambda slot, head: sampling(slot, 1, head),
        lowering,
        weights.stacks,
        activations.spans | weights.spans,
    )
