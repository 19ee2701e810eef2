"""Addresses without memory, for programs that are built and recorded but never run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy.typing as npt

from engine.vulkan.api import NULL
from engine.vulkan.device import Device
from engine.vulkan.memory import ALIGNMENT, Memory, Slice

_FIRST_ADDRESS = 1 << 40


class UnbackedMemory(Memory):
    """Hands out slices that lie apart like real ones, and allocates nothing: a model of any size fits."""

    backed = False
    most_bytes = 1 << 62

    def __init__(self, device: Device) -> None:
        """Nothing is asked of ``device``."""
        self.device = device
        self.allocated_bytes = 0
        self._next = _FIRST_ADDRESS

    def allocate(self, size: int, kind: str = "device", constant: bool = False) -> Slice:
        """A slice of ``size`` bytes of address space."""
        address = self._next
        self._next += -(-max(size, 16) // ALIGNMENT) * ALIGNMENT
        return Slice(NULL, 0, max(size, 16), address, None, constant)

    def allocate_many(self, sizes: Sequence[int], kind: str = "device", constant: bool = False) -> list[Slice]:
        """A slice of address space for each of ``sizes``."""
        return [self.allocate(size, kind, constant) for size in sizes]

    def write(self, target: Slice, data: npt.NDArray[Any]) -> None:
        """Nothing: there is no memory."""

    def flush(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing to free."""
