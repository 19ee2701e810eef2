"""The decode program: one token's ops for a context bucket, with its barriers."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from engine.program.fusion import fuse
from engine.program.lower import Lowering
from engine.program.nodes import Node, Stack
from engine.program.op import Op
from engine.program.schedule import Scheduler
from engine.vulkan.memory import Slice

BUCKET_TOKENS = 512


class Settings(NamedTuple):
    """What a user can switch between two tokens."""

    mode: str
    passes: tuple[str, ...]  # fusion passes, in the order of engine.program.fusion.PASSES
    barriers: str


class Slot(NamedTuple):
    """A recording's own host-visible memory: StepParams in, the sampled id out."""

    step: Slice
    readback: Slice


class DecodeProgram(NamedTuple):
    """Ops in order; ``barriers[i]`` says whether one stands before op i.

    ``head`` is the LM head's node where sampling's first op computes it.
    """

    ops: list[Op]
    barriers: list[bool]
    barrier_count: int
    head: Node | None = None
    dispatches: int | None = None  # None: one an op


class ProgramBuilder:
    """Builds decode programs from nothing: nodes, passes, ops, schedule. ``builds`` counts them.

    ``nodes()`` makes the model's own list of a token's nodes, before any pass.
    """

    def __init__(
        self,
        nodes: Callable[[], list[Node]],
        sample: Callable[[Slot, Node | None], list[Op]],
        lowering: Lowering,
        stacks: dict[int, Stack],
        spans: dict[tuple[int, int], Slice],
    ) -> None:
        self.nodes, self._sample, self._lowering = nodes, sample, lowering
        self._stacks, self._spans = stacks, spans
        self._scheduler = Scheduler()
        self.builds = 0

    def bucket(self, position: int) -> int:
        """The bucket (tokens of context) that covers feeding a token at ``position``."""
        size = min(BUCKET_TOKENS, self._lowering.context)
        return min(-(-(position + 1) // size) * size, self._lowering.context)

    @property
    def outer_buckets(self) -> tuple[int, ...]:
        """The shortest and the longest bucket, and the last one with attention's kernel of one range.

        Their programs have all kernels that those between have.
        """
        context, size = self._lowering.context, self.bucket(0)
        one_range = self._lowering.one_range_tokens // size * size
        return tuple(dict.fromkeys(self.bucket(max(tokens - 1, 0)) for tokens in (0, one_range, context)))

    def build(self, bucket: int, settings: Settings, slot: Slot) -> DecodeProgram:
        """One token's program; feeds the state's token and samples the next."""
        nodes = self.nodes()
        if settings.passes:
            lowering = self._lowering
            passes = [name for name in settings.passes if name in lowering.passes]
            nodes = fuse(nodes, passes, self._stacks, self._spans, lowering.g.eps)
        head = nodes.pop() if nodes[-1].kind == "head_keys" else None
        self._lowering.context_bucket = bucket
        ops = self._lowering.lower(nodes)
        ops += self._sample(slot, head)
        ops, barriers = self._scheduler.schedule(ops, settings.barriers)
        self.builds += 1
        return DecodeProgram(ops, barriers, sum(barriers), head)

    def with_slot(self, program: DecodeProgram, slot: Slot) -> DecodeProgram:
        """The same program on another slot: only the sampling ops at its end touch one."""
        sampling = self._sample(slot, program.head)
        return program._replace(ops=program.ops[: -len(sampling)] + sampling)
