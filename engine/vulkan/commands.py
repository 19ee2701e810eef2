"""Command buffers: recording a scheduled program, submitting it, waiting for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from engine.vulkan.api import NULL, UINT64_MAX, check, device_function, ffi, lib
from engine.vulkan.device import Device

if TYPE_CHECKING:
    from engine.program.op import Op
    from engine.vulkan.memory import Slice

ONE_TIME_SUBMIT = 1
_RESULT_64, _RESULT_WAIT = 1, 2
_COMPUTE_STAGE, _TRANSFER_STAGE, _HOST_STAGE, _TOP, _BOTTOM = 0x800, 0x1000, 0x4000, 0x1, 0x2000
_SHADER_READ, _SHADER_WRITE, _TRANSFER_READ, _TRANSFER_WRITE = 0x20, 0x40, 0x800, 0x1000
_HOST_READ, _HOST_WRITE = 0x2000, 0x4000


def _barrier(source: int, destination: int) -> Any:
    return ffi.new("VkMemoryBarrier*", {"sType": 46, "srcAccessMask": source, "dstAccessMask": destination})


class CommandBuffer:
    """One command buffer with its fence and two timestamps (start and end of its GPU work)."""

    def __init__(self, device: Device, ticks: Slice | None = None) -> None:
        """``ticks`` is 16 bytes of host-visible memory for the timestamps; without it the driver is asked for them.

        Asking can be slow: llvmpipe answers only when nothing is queued any more.
        """
        self.device = device
        self._tick_slice = ticks
        handle = device.handle
        pool = ffi.new("VkCommandPool*")
        create = ffi.new("VkCommandPoolCreateInfo*", {"sType": 39, "flags": 2, "queueFamilyIndex": device.queue_family})
        check(lib.vkCreateCommandPool(handle, create, NULL, pool), "creating a command pool")
        self._pool = pool[0]
        allocate = ffi.new(
            "VkCommandBufferAllocateInfo*", {"sType": 40, "commandPool": self._pool, "commandBufferCount": 1}
        )
        self._buffers = ffi.new("VkCommandBuffer[1]")
        check(lib.vkAllocateCommandBuffers(handle, allocate, self._buffers), "allocating a command buffer")
        self.handle = self._buffers[0]
        self._fences = ffi.new("VkFence[1]")
        check(
            lib.vkCreateFence(handle, ffi.new("VkFenceCreateInfo*", {"sType": 8}), NULL, self._fences),
            "creating a fence",
        )
        self._fence = self._fences[0]
        queries = ffi.new("VkQueryPoolCreateInfo*", {"sType": 11, "queryType": 2, "queryCount": 2})
        query_pool = ffi.new("VkQueryPool*")
        check(lib.vkCreateQueryPool(handle, queries, NULL, query_pool), "creating a query pool")
        self._queries = query_pool[0]
        self._ticks = ffi.new("uint64_t[2]") if ticks is None else ffi.cast("uint64_t*", ticks.pointer)
        self._begin_info = ffi.new("VkCommandBufferBeginInfo*", {"sType": 42})
        self._submit_info = ffi.new(
            "VkSubmitInfo*", {"sType": 4, "commandBufferCount": 1, "pCommandBuffers": self._buffers}
        )
        self._compute_barrier = _barrier(_SHADER_WRITE, _SHADER_READ | _SHADER_WRITE)
        self._open_barrier = _barrier(
            _SHADER_WRITE | _SHADER_READ | _TRANSFER_WRITE | _TRANSFER_READ,
            _SHADER_READ | _SHADER_WRITE | _TRANSFER_READ | _TRANSFER_WRITE,
        )
        self._update_barrier = _barrier(_TRANSFER_WRITE, _SHADER_READ | _SHADER_WRITE)
        self._host_barrier = _barrier(_SHADER_WRITE | _TRANSFER_WRITE, _HOST_READ)
        self._read_back_barrier = _barrier(_SHADER_WRITE, _TRANSFER_READ)
        self._copied_barrier = _barrier(_TRANSFER_WRITE, _HOST_READ)
        self._push_descriptors = (
            device_function(handle, "vkCmdPushDescriptorSetKHR") if device.binding == "descriptors" else None
        )

    def begin(self, flags: int = 0) -> None:
        """Start recording: a barrier against the previous submission, then the start timestamp."""
        self._begin_info.flags = flags
        check(lib.vkBeginCommandBuffer(self.handle, self._begin_info), "beginning a command buffer")
        lib.vkCmdResetQueryPool(self.handle, self._queries, 0, 2)
        self._pipeline_barrier(_COMPUTE_STAGE | _TRANSFER_STAGE, _COMPUTE_STAGE | _TRANSFER_STAGE, self._open_barrier)
        # written at the compute stage, so that the barrier above orders it after the previous token's end
        lib.vkCmdWriteTimestamp(self.handle, _COMPUTE_STAGE, self._queries, 0)

    def update(self, target: Slice, data: bytes) -> None:
        """Set up to 64 KiB of a slice from inside the buffer (a multiple of 4 bytes), visible to later ops."""
        lib.vkCmdUpdateBuffer(self.handle, target.buffer, target.offset, len(data), ffi.from_buffer(data))
        self._pipeline_barrier(_TRANSFER_STAGE, _COMPUTE_STAGE, self._update_barrier)

    def load(self, source: Slice, target: Slice) -> None:
        """Copy a slice over another of the same size from inside the buffer, visible to later ops."""
        self.copy(source, target, [(0, 0, target.size)])
        self._pipeline_barrier(_TRANSFER_STAGE, _COMPUTE_STAGE, self._update_barrier)

    def fill(self, target: Slice, word: int) -> None:
        """Set a slice (a multiple of 4 bytes) to a repeated 32-bit word from inside the buffer."""
        lib.vkCmdFillBuffer(self.handle, target.buffer, target.offset, target.size, word)
        self._pipeline_barrier(_TRANSFER_STAGE, _COMPUTE_STAGE, self._update_barrier)

    def copy(self, source: Slice, target: Slice, spans: Sequence[tuple[int, int, int]]) -> None:
        """Copy spans (offset in ``source``, offset in ``target``, size) from inside the buffer; no barrier follows."""
        regions = ffi.new("VkBufferCopy[]", len(spans))
        for region, (here, there, size) in zip(regions, spans, strict=True):
            region.srcOffset, region.dstOffset, region.size = source.offset + here, target.offset + there, size
        lib.vkCmdCopyBuffer(self.handle, source.buffer, target.buffer, len(spans), regions)

    def record(self, ops: Sequence[Op], barriers: Sequence[bool]) -> None:
        """Append ops, with a global compute barrier before each whose flag is set."""
        commands, compute_barrier = self.handle, self._compute_barrier
        bind, push, dispatch, barrier = (
            lib.vkCmdBindPipeline, lib.vkCmdPushConstants, lib.vkCmdDispatch, lib.vkCmdPipelineBarrier,
        )  # fmt: skip
        from_buffer, null = ffi.from_buffer, NULL
        bound = None
        descriptors = self._push_descriptors is not None
        for op, hazard in zip(ops, barriers, strict=True):
            if hazard:
                barrier(commands, 0x800, 0x800, 0, 1, compute_barrier, 0, null, 0, null)
            kernel = op.kernel
            if kernel is not bound:
                bind(commands, 1, kernel.pipeline)
                bound = kernel
            if descriptors and op.buffers:
                self._write_descriptors(op)
            push(commands, kernel.layout, 0x20, 0, kernel.push_bytes, from_buffer(op.push))
            dispatch(commands, *op.groups)

    def record_all(
        self,
        ops: Sequence[Op],
        barriers: Sequence[bool],
        flags: int = 0,
        read_back: tuple[Slice, Slice] | None = None,
    ) -> None:
        """Record a whole buffer: ``begin``, the ops, ``end``."""
        self.begin(flags)
        self.record(ops, barriers)
        self.end(read_back)

    def end(self, read_back: tuple[Slice, Slice] | None = None) -> None:
        """Finish recording: a barrier that makes writes visible to the host, then the end timestamp.

        ``read_back``: a slice and the host-visible one of the same size that it is copied to behind that.
        """
        self._pipeline_barrier(_COMPUTE_STAGE | _TRANSFER_STAGE, _HOST_STAGE | _BOTTOM, self._host_barrier)
        lib.vkCmdWriteTimestamp(self.handle, _BOTTOM, self._queries, 1)
        if read_back is not None:
            source, target = read_back
            self._pipeline_barrier(_COMPUTE_STAGE, _TRANSFER_STAGE, self._read_back_barrier)
            self.copy(source, target, [(0, 0, target.size)])
            self._pipeline_barrier(_TRANSFER_STAGE, _HOST_STAGE, self._copied_barrier)
        if self._tick_slice is not None:
            target = self._tick_slice
            flags = _RESULT_64 | _RESULT_WAIT
            lib.vkCmdCopyQueryPoolResults(self.handle, self._queries, 0, 2, target.buffer, target.offset, 8, flags)
            self._pipeline_barrier(_TRANSFER_STAGE, _HOST_STAGE, self._copied_barrier)
        check(lib.vkEndCommandBuffer(self.handle), "ending a command buffer")

    def submit(self) -> None:
        """Queue the buffer; it may not be pending already."""
        check(lib.vkQueueSubmit(self.device.queue, 1, self._submit_info, self._fence), "submitting")

    def wait(self) -> None:
        """Block until the buffer has finished, and make it ready for the next submit."""
        check(lib.vkWaitForFences(self.device.handle, 1, self._fences, 1, UINT64_MAX), "waiting for the GPU")
        check(lib.vkResetFences(self.device.handle, 1, self._fences), "resetting a fence")

    def run_us(self) -> float:
        """Submit, wait and return the GPU time, microseconds."""
        self.submit()
        self.wait()
        start_ns, end_ns = self.ticks_ns()
        return (end_ns - start_ns) / 1e3

    @property
    def finished(self) -> bool:
        """Whether the submitted work has ended."""
        return bool(lib.vkGetFenceStatus(self.device.handle, self._fence) == 0)

    def ticks_ns(self) -> tuple[float, float]:
        """Device time (ns, as Device.timestamp_ns counts) of the start and end of the work that just finished."""
        if self._tick_slice is None:
            flags = _RESULT_64 | _RESULT_WAIT
            result = lib.vkGetQueryPoolResults(self.device.handle, self._queries, 0, 2, 16, self._ticks, 8, flags)
            check(result, "reading timestamps")
        return self.device.timestamp_ns(self._ticks[0]), self.device.timestamp_ns(self._ticks[1])

    def close(self) -> None:
        """Destroy the buffer; it may not be pending."""
        handle = self.device.handle
        lib.vkDestroyQueryPool(handle, self._queries, NULL)
        lib.vkDestroyFence(handle, self._fence, NULL)
        lib.vkDestroyCommandPool(handle, self._pool, NULL)

    def _pipeline_barrier(self, source: int, destination: int, barrier: Any) -> None:
        lib.vkCmdPipelineBarrier(self.handle, source, destination, 0, 1, barrier, 0, NULL, 0, NULL)

    def _write_descriptors(self, op: Op) -> None:
        count = len(op.buffers)
        infos = ffi.new("VkDescriptorBufferInfo[]", count)
        writes = ffi.new("VkWriteDescriptorSet[]", count)
        for index, item in enumerate(op.buffers):
            infos[index].buffer, infos[index].offset, infos[index].range = item.buffer, item.offset, item.size
            writes[index].sType, writes[index].dstBinding, writes[index].descriptorCount = 35, index, 1
            writes[index].descriptorType, writes[index].pBufferInfo = 7, infos + index
        assert self._push_descriptors is not None
        self._push_descriptors(self.handle, 1, op.kernel.layout, 0, count, writes)
