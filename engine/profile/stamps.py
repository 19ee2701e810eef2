"""Stamped twins: a token whose kernels note the device clock themselves.

Each workgroup writes its first start and its last end into a slot of its own, so the stamps cost no atomics
and no kernel waits for another. From the slots follow, per dispatch, the first start and the last end, and
from those the time in which any kernel ran and the time between kernels in which none did.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from engine.profile.kernel_clock import KernelClock
from engine.program.op import PIECES, Op
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Kernels

_SLOT_BYTES = 16  # start and end, 64 bits each
_pack = struct.Struct("<Q").pack


class Stamps:
    """Slots for one program's stamped twin, grown as programs need them.

    They lie in the device's memory and are copied to the host's behind the program: on an H200 stamps stored across
    the bus made a token up to 2% longer.
    """

    def __init__(self, memory: Memory) -> None:
        self.memory = memory
        self._slots: Slice | None = None
        self._host: Slice | None = None

    def twin(self, ops: Sequence[Op], kernels: Kernels) -> StampedProgram:
        """The ops with their kernels' twins in place. Their slots serve one program at a time."""
        counts = np.array([op.groups[0] * op.groups[1] for op in ops])
        slots, host = self._taken(int(counts.sum()))
        starts = np.concatenate(([0], np.cumsum(counts)[:-1]))
        twins = []
        for op, start in zip(ops, starts, strict=True):
            push = _pack(slots.address + int(start) * _SLOT_BYTES) + op.push
            twins.append(op.with_kernel(kernels.twin(op.kernel), push))
        return self._program(twins, slots, host, starts)

    def resident(self, ops: Sequence[Op], workgroups: int) -> StampedProgram:
        """The ops as records of a tape that resident workgroups walk, each of which stamps each op."""
        slots, host = self._taken(len(ops) * workgroups)
        return self._program(list(ops), slots, host, np.arange(len(ops)) * workgroups)

    def _taken(self, count: int) -> tuple[Slice, Slice]:
        """Slots for so many workgroups, and where the host reads them."""
        size = count * _SLOT_BYTES
        if self._slots is None or self._slots.size < size:
            self._slots = self.memory.allocate(size)
            mapped = self._slots.pointer is not None
            self._host = self._slots if mapped else self.memory.allocate(size, "readback")
        assert self._host is not None
        return self._slots.part(0, size), self._host.part(0, size)

    def _program(self, ops: list[Op], slots: Slice, host: Slice, starts: npt.NDArray[np.int64]) -> StampedProgram:
        return StampedProgram(ops, host, starts, None if self._host is self._slots else (slots, host), slots.address)


class StampedProgram:
    """Ops that stamp, and the reading of what they stamped.

    ``read_back`` is what the end of their command buffer must copy, if anything, ``address`` where the slots begin on
    the device.
    """

    def __init__(
        self,
        ops: list[Op],
        slots: Slice,
        starts: npt.NDArray[np.int64],
        read_back: tuple[Slice, Slice] | None,
        address: int,
    ) -> None:
        self.ops, self._slots, self._starts, self.read_back = ops, slots, starts, read_back
        self.address = address

    def spans_ns(self, clock: KernelClock) -> npt.NDArray[np.float64]:
        """(ops, 2): each dispatch's first start and last end, on the device clock, after the first stamp."""
        ticks = clock.relative(self._slots.host().view(np.uint64).reshape(-1, 2))
        first = np.minimum.reduceat(ticks[:, 0], self._starts)
        last = np.maximum.reduceat(ticks[:, 1], self._starts)
        return np.stack((first, last), axis=1) * clock.tick_ns

    def first_stamp(self) -> int:
        """The first stamp as its kernel read it, ticks: what ``spans_ns`` counts from."""
        return int(self._slots.host()[:8].view(np.uint64)[0])


def account(spans_ns: npt.NDArray[np.float64], pieces: Sequence[str]) -> tuple[float, float, dict[str, float]]:
    """(kernels_us, bubbles_us, pieces_us) of one token.

    ``spans_ns`` are (ops, 2) starts and ends in program order. Kernels is the time in which at least one kernel ran,
    bubbles the time between the first start and the last end in which none did. A piece's time is that of its
    kernels; where kernels overlap, the time counts for the one that started first.
    """
    order = np.argsort(spans_ns[:, 0], kind="stable")
    start, end = spans_ns[order, 0], spans_ns[order, 1]
    covered = np.concatenate((start[:1], np.maximum.accumulate(end)[:-1]))  # end of all earlier kernels
    busy = np.maximum(end - np.maximum(start, covered), 0)
    gaps = np.maximum(start - covered, 0)
    index = np.array([PIECES.index(piece) for piece in pieces])[order]
    per_piece = np.bincount(index, weights=busy, minlength=len(PIECES)) / 1e3
    named = {piece: float(value) for piece, value in zip(PIECES, per_piece, strict=True)}
    return float(busy.sum()) / 1e3, float(gaps.sum()) / 1e3, named


def span_us(spans_ns: npt.NDArray[np.float64]) -> float:
    """From the first kernel's start to the last one's end."""
    return float(spans_ns[:, 1].max() - spans_ns[:, 0].min()) / 1e3
