"""What the driver says a process may still allocate."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from engine.vulkan.api import ffi, lib

_EXTENSION = "VK_EXT_memory_budget"
_BUDGET_TYPE = 1000237000
_PROPERTIES_TYPE = 1000059006
_DEVICE_LOCAL = 1


def available_bytes(physical: Any, extensions: Collection[str]) -> int | None:
    """heapBudget - heapUsage of the largest device-local heap of a VkPhysicalDevice with these ``extensions``.

    None where the driver does not say.
    """
    if _EXTENSION not in extensions:
        return None
    budget = ffi.new("VkPhysicalDeviceMemoryBudgetPropertiesEXT*", {"sType": _BUDGET_TYPE})
    properties = ffi.new("VkPhysicalDeviceMemoryProperties2*", {"sType": _PROPERTIES_TYPE, "pNext": budget})
    lib.vkGetPhysicalDeviceMemoryProperties2(physical, properties)
    heaps = properties.memoryProperties
    local = [i for i in range(heaps.memoryHeapCount) if heaps.memoryHeaps[i].flags & _DEVICE_LOCAL]
    if not local:
        return None
    heap = max(local, key=lambda i: heaps.memoryHeaps[i].size)
    return max(int(budget.heapBudget[heap]) - int(budget.heapUsage[heap]), 0)
