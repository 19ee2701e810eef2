"""Memory on the device."""

from __future__ import annotations

import pytest

from engine.vulkan.api import ffi, lib
from tests.engine.gpu import Gpu

STEP_BYTES = 8 * 1024  # of a kernel's loop over blocks of weights or over keys, at most


def test_a_software_device_may_read_a_step_beyond_the_last_slice() -> None:
    """llvmpipe's kernels do: without memory there the process dies, now and then."""
    with Gpu() as gpu:
        if not gpu.device.is_cpu:
            pytest.skip("a GPU reads what its kernels say")
        slices = [gpu.memory.allocate(100 << 20), *gpu.memory.allocate_many([4096, 8192], constant=True)]
        requirements = ffi.new("VkMemoryRequirements*")
        for last in (slices[0], slices[2]):
            lib.vkGetBufferMemoryRequirements(gpu.device.handle, last.buffer, requirements)
            assert requirements.size >= last.offset + last.size + STEP_BYTES
