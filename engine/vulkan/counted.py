"""Memory that is only counted: what would be allocated, block by block, without allocating it."""

from __future__ import annotations

from typing import Any, Self

import numpy.typing as npt

from engine.vulkan.api import NULL
from engine.vulkan.memory import Block, Memory

_FIRST_ADDRESS = 1 << 40


class CountedMemory(Memory):
    """Cuts slices from blocks as real memory does; ``device_bytes`` are those of the blocks of kind "device"."""

    backed = False
    most_bytes = 1 << 62

    def __init__(self) -> None:
        """Nothing is counted yet."""
        self.allocated_bytes = 0
        self.device_bytes = 0
        self._blocks = {}
        self._next = _FIRST_ADDRESS

    def copy(self) -> Self:
        """The same counts, to go on from separately."""
        other = type(self)()
        other.allocated_bytes, other.device_bytes, other._next = self.allocated_bytes, self.device_bytes, self._next
        for key, blocks in self._blocks.items():
            other._blocks[key] = [Block(NULL, NULL, block.size, block.address, None) for block in blocks]
            for mine, theirs in zip(blocks, other._blocks[key], strict=True):
                theirs.used = mine.used
        return other

    def write(self, target: Any, data: npt.NDArray[Any]) -> None:
        """Nothing: there is no memory."""

    def flush(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing to free."""

    def _new_block(self, size: int, needed: int, kind: str) -> Block:
        self.allocated_bytes += size
        if kind == "device":
            self.device_bytes += size
        address, self._next = self._next, self._next + size
        return Block(NULL, NULL, size, address, None)
