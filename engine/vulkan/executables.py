"""What the driver's compiler says about a kernel: registers, spills, shared memory, occupancy.

Read through VK_KHR_pipeline_executable_properties from kernels of a device opened with ``statistics=True``. The
specification leaves names and meaning of the statistics to the driver.
"""

from __future__ import annotations

from typing import Any

from engine.errors import EngineError
from engine.vulkan.api import NULL, check, device_function, ffi
from engine.vulkan.device import Device
from engine.vulkan.pipelines import Kernel

_FIELDS = ("b32", "i64", "u64", "f64")  # by VkPipelineExecutableStatisticFormatKHR
_TYPES = {"VkPipelineExecutablePropertiesKHR": 1000269002, "VkPipelineExecutableStatisticKHR": 1000269004}
_ASKING = "reading compile statistics"


def executable_statistics(device: Device, kernel: Kernel) -> dict[str, int | float]:
    """The driver's statistics of a kernel by the driver's own names, and ``Subgroup size``.

    Raise EngineError where the device was not opened with ``statistics`` or the driver offers none.
    """
    if not device.keeps_statistics:
        raise no_statistics(device)
    handle = device.handle
    pipeline = ffi.new("VkPipelineInfoKHR*", {"sType": 1000269001, "pipeline": kernel.pipeline})
    about = _all(handle, "vkGetPipelineExecutablePropertiesKHR", "VkPipelineExecutablePropertiesKHR", pipeline)[0]
    which = ffi.new("VkPipelineExecutableInfoKHR*", {"sType": 1000269003, "pipeline": kernel.pipeline})
    found = _all(handle, "vkGetPipelineExecutableStatisticsKHR", "VkPipelineExecutableStatisticKHR", which)
    values = {ffi.string(item.name).decode(): getattr(item.value, _FIELDS[item.format]) for item in found}
    return {"Subgroup size": about.subgroupSize, **values}


def no_statistics(device: Device) -> EngineError:
    """The error where the device was not opened with ``statistics`` or its driver offers none."""
    return EngineError(f"{device.info.name} offers no compile statistics (VK_KHR_pipeline_executable_properties)")


def _all(device: Any, function: str, structure: str, of: Any) -> Any:
    """The array of structures that a two-call enumeration of ``of`` gives."""
    enumerate_ = device_function(device, function)
    count = ffi.new("uint32_t*")
    check(enumerate_(device, of, count, NULL), _ASKING)
    items = ffi.new(f"{structure}[]", count[0])
    for index in range(count[0]):
        items[index].sType = _TYPES[structure]
    check(enumerate_(device, of, count, items), _ASKING)
    return items
