"""The raw cffi seam to Vulkan: every call in the engine goes through ``lib`` and ``ffi`` of this module.

The PyPI package's wrapper functions cost 10 to 15 times more than the raw ones, so only its ``ffi``
(the parsed vulkan.h, 1.3.275) and its ``lib`` (libvulkan.so.1) are used.
"""

from __future__ import annotations

from typing import Any

from engine.errors import EngineError

try:
    from vulkan import _vulkan
except OSError as error:  # the package opens libvulkan.so.1 when it is imported
    _vulkan = None
    _LOAD_ERROR: OSError | None = error
else:
    _LOAD_ERROR = None

ffi: Any = _vulkan.ffi if _vulkan else None
lib: Any = _vulkan.lib if _vulkan else None
NULL: Any = ffi.NULL if ffi else None
UINT64_MAX = 2**64 - 1  # VK_WHOLE_SIZE and "no timeout"; the package's own VK_WHOLE_SIZE is -1 and overflows

_RESULTS = {
    -1: "out of host memory",
    -2: "out of device memory",
    -3: "initialisation failed",
    -4: "the device was lost (a hang, or the driver reset it)",
    -5: "mapping memory failed",
    -6: "a layer is not present",
    -7: "an extension is not present",
    -8: "a feature is not present",
    -9: "incompatible driver",
    -10: "too many objects",
    2: "timed out",
}


class VulkanError(EngineError):
    """A Vulkan call returned an error; ``result`` is its VkResult."""

    def __init__(self, what: str, result: int) -> None:
        super().__init__(f"{what} failed: {_RESULTS.get(result, 'VkResult')} ({result})")
        self.result = result


def require_loader() -> None:
    """Raise EngineError unless the Vulkan loader could be opened."""
    if lib is None:
        raise EngineError(
            "no Vulkan loader (libvulkan.so.1): run 'make setup' and start scripts by "
            "'python -m zincchat.launcher --exec', or install libvulkan1 and mesa-vulkan-drivers"
        ) from _LOAD_ERROR


def check(result: int, what: str) -> None:
    """Raise VulkanError if ``result`` (a VkResult) is an error; ``what`` names the call in plain words."""
    if result < 0:
        raise VulkanError(what, result)


def instance_function(instance: Any, name: str) -> Any:
    """Address of an extension's instance function, typed; None where it is missing."""
    pointer = lib.vkGetInstanceProcAddr(instance, name.encode())
    return ffi.cast(f"PFN_{name}", pointer) if pointer != NULL else None


def device_function(device: Any, name: str) -> Any:
    """Address of a device function, typed, without the loader's dispatch in between; None where it is missing."""
    pointer = lib.vkGetDeviceProcAddr(device, name.encode())
    return ffi.cast(f"PFN_{name}", pointer) if pointer != NULL else None
