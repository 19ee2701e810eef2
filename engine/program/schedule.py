"""The order of ops, and which need a barrier before them."""

from __future__ import annotations

from itertools import pairwise

from engine.errors import EngineError
from engine.program.op import Op
from engine.vulkan.memory import Slice

NEEDED, FLAGS = "needed", "flags"
BARRIERS = ("every", NEEDED, FLAGS)

Range = tuple[int, int]  # device addresses, from and to


class Overlaps:
    """Which address ranges overlap which, worked out once a range: programs use the same few again and again."""

    def __init__(self) -> None:
        self._overlaps: dict[Range, list[Range]] = {}

    def of(self, item: Slice) -> list[Range]:
        """The ranges seen so far that overlap a slice, its own among them."""
        key = item.range
        found = self._overlaps.get(key)
        if found is None:
            found = [key]
            for other, others in self._overlaps.items():
                if other[0] < key[1] and key[0] < other[1]:
                    found.append(other)
                    others.append(key)
            self._overlaps[key] = found
        return found


class Scheduler:
    """Puts barriers between ops; ``schedule`` may be called again and again."""

    def __init__(self) -> None:
        self._overlaps = Overlaps()

    def schedule(self, ops: list[Op], policy: str) -> tuple[list[Op], list[bool]]:
        """The ops in the order to record them in, and for each whether a compute-to-compute barrier stands before it.

        ``every`` keeps the order and puts a barrier after each dispatch. ``needed`` moves an op up to the first
        point at which all it depends on is behind a barrier, so that one barrier serves everything due at once and
        their number is that of the longest chain of dependent ops. An op depends on an earlier one that wrote what
        it touches, or read what it writes. The first op needs none: each command buffer opens with a barrier of its
        own. ``flags`` is as ``needed``: that kernels wait in memory there is the recording's affair (decode/flags.py).
        Raise EngineError for an unknown policy.
        """
        if policy == "every":
            return ops, [index > 0 for index in range(len(ops))]
        if policy not in BARRIERS:
            raise EngineError(f"unknown barrier policy {policy!r}; there is {', '.join(BARRIERS)}")
        levels = self._levels(ops)
        if any(before > after for before, after in pairwise(levels)):
            order = sorted(range(len(ops)), key=levels.__getitem__)
            ops, levels = [ops[i] for i in order], [levels[i] for i in order]
        return ops, [index > 0 and levels[index] != levels[index - 1] for index in range(len(ops))]

    def _levels(self, ops: list[Op]) -> list[int]:
        """For each op, how many barriers must come before it."""
        overlaps = self._overlaps.of
        written: dict[Range, int] = {}  # the level of the last op that wrote a range
        read: dict[Range, int] = {}  # the highest level of those that read it since
        levels = []
        for op in ops:
            level = 0
            buffers, kernel = op.buffers, op.kernel
            for index in kernel.reads:
                if not buffers[index].constant:
                    for key in overlaps(buffers[index]):
                        if key in written and written[key] >= level:
                            level = written[key] + 1
            for index in kernel.writes:
                for key in overlaps(buffers[index]):
                    if key in written and written[key] >= level:
                        level = written[key] + 1
                    if key in read and read[key] >= level:
                        level = read[key] + 1
            for index in kernel.reads:
                if not buffers[index].constant:
                    key = buffers[index].range
                    read[key] = max(read.get(key, 0), level)
            for index in kernel.writes:
                written[buffers[index].range] = level
            levels.append(level)
        return levels
