"""Device memory: slices cut from a few large buffers."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.vulkan import budget
from engine.vulkan.api import NULL, UINT64_MAX, VulkanError, check, ffi, lib
from engine.vulkan.device import Device
from engine.vulkan.staging import Staging

ALIGNMENT = 256  # the largest minStorageBufferOffsetAlignment the specification allows
_BLOCK_BYTES = 64 << 20
_LARGE_BLOCK_BYTES = 256 << 20  # of slices whose sizes are known beforehand
_USAGE = 0x20 | 0x1 | 0x2 | 0x20000  # STORAGE_BUFFER, TRANSFER_SRC, TRANSFER_DST, SHADER_DEVICE_ADDRESS
_LOCAL, _VISIBLE, _COHERENT, _CACHED = 1, 2, 4, 8


class Slice:
    """A range of a buffer. ``address`` is its device address, ``pointer`` its host address or None.

    ``constant`` marks data no kernel writes (weights, tables): hazards skip it.
    """

    __slots__ = ("address", "buffer", "constant", "offset", "pointer", "range", "size")

    def __init__(self, buffer: Any, offset: int, size: int, address: int, pointer: int | None, constant: bool) -> None:
        self.buffer = buffer
        self.offset = offset
        self.size = size
        self.address = address
        self.range = (address, address + size)  # device addresses
        self.pointer = pointer
        self.constant = constant

    def part(self, offset: int, size: int) -> Slice:
        """The ``size`` bytes at ``offset`` of this slice."""
        if offset < 0 or size <= 0 or offset + size > self.size:
            raise ValueError(f"part {offset}+{size} of a slice of {self.size} bytes")
        pointer = None if self.pointer is None else self.pointer + offset
        return Slice(self.buffer, self.offset + offset, size, self.address + offset, pointer, self.constant)

    def host(self) -> npt.NDArray[np.uint8]:
        """The slice as host memory, uint8 (size,); only where ``pointer`` is set."""
        if self.pointer is None:
            raise ValueError("this slice is not mapped")
        return np.ctypeslib.as_array((ctypes.c_uint8 * self.size).from_address(self.pointer))


class Block:
    def __init__(self, buffer: Any, memory: Any, size: int, address: int, pointer: int | None) -> None:
        self.buffer, self.memory, self.size = buffer, memory, size
        self.address, self.pointer, self.used = address, pointer, 0


def _runs(sizes: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Ranges of ``sizes`` that share a block: of at most _LARGE_BLOCK_BYTES, or of one alone."""
    first, total = 0, 0
    for index, size in enumerate(sizes):
        if total and total + size > _LARGE_BLOCK_BYTES:
            yield first, index
            first, total = index, 0
        total += size
    if total:
        yield first, len(sizes)


class Memory:
    """Everything the engine allocates on one device; freed together by ``close``.

    Kinds: "device" (fast for kernels), "upload" (host writes, kernels read), "readback" (kernels write,
    host reads). ``allocated_bytes`` counts the Vulkan allocations; ``backed`` is False where there are none.
    """

    backed = True

    def __init__(self, device: Device) -> None:
        self.device = device
        self.allocated_bytes = 0
        self._blocks: dict[tuple[str, bool], list[Block]] = {}
        properties = ffi.new("VkPhysicalDeviceMemoryProperties*")
        lib.vkGetPhysicalDeviceMemoryProperties(device.physical, properties)
        self._types = [properties.memoryTypes[i].propertyFlags for i in range(properties.memoryTypeCount)]
        self._staging: Staging | None = None

    def allocate(self, size: int, kind: str = "device", constant: bool = False) -> Slice:
        """A slice of ``size`` bytes, aligned to 256, with anything in it. EngineError when memory is out."""
        size = max(size, 16)
        padded = -(-size // ALIGNMENT) * ALIGNMENT
        blocks = self._blocks.setdefault((kind, constant), [])
        block = next((item for item in blocks if item.used + padded <= item.size), None)
        if block is None:
            block = self._new_block(max(padded, _BLOCK_BYTES if kind == "device" else 1 << 20), padded, kind)
            blocks.append(block)
        offset = block.used
        block.used += padded
        pointer = None if block.pointer is None else block.pointer + offset
        return Slice(block.buffer, offset, size, block.address + offset, pointer, constant)

    def allocate_many(self, sizes: Sequence[int], kind: str = "device", constant: bool = False) -> list[Slice]:
        """A slice for each of ``sizes`` as ``allocate`` gives them, from blocks that hold nothing else."""
        padded = [-(-max(size, 16) // ALIGNMENT) * ALIGNMENT for size in sizes]
        slices: list[Slice] = []
        for first, end in _runs(padded):
            total = sum(padded[first:end])
            block = self._new_block(total, total, kind)
            self._blocks.setdefault((kind, constant), []).append(block)
            for size, taken in zip(sizes[first:end], padded[first:end], strict=True):
                pointer = None if block.pointer is None else block.pointer + block.used
                address = block.address + block.used
                slices.append(Slice(block.buffer, block.used, max(size, 16), address, pointer, constant))
                block.used += taken
        return slices

    @property
    def most_bytes(self) -> int:
        """The largest slice there can be."""
        return self.device.most_slice_bytes

    @contextmanager
    def temporary(self, size: int, kind: str = "device") -> Iterator[Slice]:
        """A slice with memory of its own, freed on exit: no kernel may use it then. EngineError if none is left."""
        block = self._new_block(size, size, kind)
        try:
            yield Slice(block.buffer, 0, size, block.address, block.pointer, False)
        finally:
            self._free(block)

    def available_bytes(self) -> int | None:
        """What the driver says is left of the largest device-local heap; None where it does not say."""
        return budget.available_bytes(self.device.physical, self.device.extensions)

    def write(self, target: Slice, data: npt.NDArray[Any]) -> None:
        """Copy an array's bytes into a slice; blocks until the bytes left ``data`` (not until they arrived)."""
        source = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        if source.size > target.size:
            raise ValueError(f"{source.size} bytes do not fit a slice of {target.size}")
        if target.pointer is not None:
            target.host()[: source.size] = source
            return
        self.staging.write(target, source)

    def flush(self) -> None:
        """Wait until every write has arrived."""
        if self._staging is not None:
            self._staging.flush()

    def read(self, source: Slice) -> npt.NDArray[np.uint8]:
        """Copy a slice to a new uint8 array; waits for the device to be idle first."""
        self.device.wait_idle()
        if source.pointer is not None:
            return source.host().copy()
        return self.staging.read(source)

    @property
    def staging(self) -> Staging:
        """The way to memory that the host cannot reach, made when it is first needed."""
        if self._staging is None:
            self._staging = Staging(self)
        return self._staging

    def close(self) -> None:
        """Free everything; the device must be idle."""
        if self._staging is not None:
            self._staging.close()
        for blocks in self._blocks.values():
            for block in blocks:
                self._free(block)
        self._blocks.clear()

    def _free(self, block: Block) -> None:
        lib.vkDestroyBuffer(self.device.handle, block.buffer, NULL)
        lib.vkFreeMemory(self.device.handle, block.memory, NULL)
        self.allocated_bytes -= block.size

    def _memory_type(self, kind: str, allowed: int) -> int:
        if kind == "device":
            unified = self.device.info.kind in ("cpu", "integrated")
            orders = [_LOCAL | _VISIBLE | _COHERENT, _LOCAL] if unified else [_LOCAL]
        elif kind == "upload":
            orders = [_VISIBLE | _COHERENT]
        else:
            orders = [_VISIBLE | _COHERENT | _CACHED, _VISIBLE | _COHERENT]
        for wanted in orders:
            for index, flags in enumerate(self._types):
                if allowed >> index & 1 and flags & wanted == wanted:
                    return index
        raise EngineError(f"{self.device.info.name} has no memory type for {kind} buffers")

    def _new_block(self, size: int, needed: int, kind: str) -> Block:
        try:
            return self._create_block(size, kind)
        except VulkanError as error:
            if error.result != -2 and error.result != -1:
                raise
            if size > needed:  # the block was larger than this slice needs
                return self._new_block(needed, needed, kind)
            raise EngineError(
                f"out of device memory: {needed / 1e6:,.0f} MB more than the {self.allocated_bytes / 1e6:,.0f} MB; "
                "take a smaller model, a smaller --context or another --device"
            ) from error

    def _create_block(self, size: int, kind: str) -> Block:
        handle = self.device.handle
        whole = size + self.device.overread_bytes
        create = ffi.new("VkBufferCreateInfo*", {"sType": 12, "size": whole, "usage": _USAGE})
        buffer = ffi.new("VkBuffer*")
        check(lib.vkCreateBuffer(handle, create, NULL, buffer), "creating a buffer")
        requirements = ffi.new("VkMemoryRequirements*")
        lib.vkGetBufferMemoryRequirements(handle, buffer[0], requirements)
        index = self._memory_type(kind, requirements.memoryTypeBits)
        flags = ffi.new("VkMemoryAllocateFlagsInfo*", {"sType": 1000060000, "flags": 2})  # DEVICE_ADDRESS
        info = ffi.new(
            "VkMemoryAllocateInfo*",
            {"sType": 5, "pNext": flags, "allocationSize": requirements.size, "memoryTypeIndex": index},
        )
        memory = ffi.new("VkDeviceMemory*")
        result = lib.vkAllocateMemory(handle, info, NULL, memory)
        if result < 0:
            lib.vkDestroyBuffer(handle, buffer[0], NULL)
            check(result, "allocating memory")
        check(lib.vkBindBufferMemory(handle, buffer[0], memory[0], 0), "binding memory")
        pointer = None
        if self._types[index] & (_VISIBLE | _COHERENT) == _VISIBLE | _COHERENT:
            mapped = ffi.new("void**")
            check(lib.vkMapMemory(handle, memory[0], 0, UINT64_MAX, 0, mapped), "mapping memory")
            pointer = int(ffi.cast("uintptr_t", mapped[0]))
        address_info = ffi.new("VkBufferDeviceAddressInfo*", {"sType": 1000244001, "buffer": buffer[0]})
        address = lib.vkGetBufferDeviceAddress(handle, address_info)
        self.allocated_bytes += size
        return Block(buffer[0], memory[0], size, int(address), pointer)
