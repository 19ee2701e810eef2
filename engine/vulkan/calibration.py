"""Device time on the host's clock: VK_KHR_calibrated_timestamps, or the EXT extension with the same calls."""

from __future__ import annotations

import sys
from contextlib import suppress
from time import get_clock_info, perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.vulkan.api import NULL, VulkanError, check, device_function, ffi, instance_function

if TYPE_CHECKING:
    from engine.vulkan.device import Device

# VkCalibratedTimestampInfoKHR's sType by the Vulkan registry; the package's constant of that name is wrong
_INFO_TYPE = 1000184000
_DEVICE, _CLOCK_MONOTONIC = 0, 1  # VkTimeDomainKHR
_READINGS = 3  # at most; the one with the least deviation counts
_GOOD_NS = 100  # a deviation at which another reading is not worth its time
_EVERY_NS = 1_000_000_000
_RATE_SPAN_NS = 100_000_000  # readings closer than this would turn their deviations into a wrong rate


class Reading(NamedTuple):
    """One moment on both clocks, ns; ``deviation_ns`` is what the driver states for it."""

    device_ns: float
    host_ns: int
    deviation_ns: int


class HostAxis(NamedTuple):
    """Maps device time (ns, as CommandBuffer.ticks_ns gives it) to the host's perf_counter_ns.

    ``deviation_ns`` None: not calibrated, but placed by the order of submit, start, end and fence.
    """

    device_ns: float
    host_ns: float
    rate: float  # host nanoseconds to a device nanosecond
    deviation_ns: int | None

    def to_host_ns(self, device_ns: float) -> float:
        """Device time on the host's clock."""
        return self.host_ns + (device_ns - self.device_ns) * self.rate


class Calibration:
    """The newest ``axis``, from readings of both clocks. Make one with ``open_calibration``."""

    def __init__(self, device: Device, function: Any) -> None:
        """Take the first reading with ``function``, vkGetCalibratedTimestamps of either extension."""
        self._device, self._function = device, function
        self._infos = ffi.new("VkCalibratedTimestampInfoEXT[2]")
        for info, domain in zip(self._infos, (_DEVICE, _CLOCK_MONOTONIC), strict=True):
            info.sType, info.timeDomain = _INFO_TYPE, domain
        self._times = ffi.new("uint64_t[2]")
        self._deviation = ffi.new("uint64_t*")
        self._rate_from = newest = self.read()
        self.axis = HostAxis(newest.device_ns, newest.host_ns, 1.0, newest.deviation_ns)

    def read(self) -> Reading:
        """Both clocks now. Some microseconds."""
        best = self._read_once()
        for _ in range(_READINGS - 1):
            if best.deviation_ns <= _GOOD_NS:
                break
            best = min(best, self._read_once(), key=lambda reading: reading.deviation_ns)
        return best

    def refresh(self) -> None:
        """Read again if the newest reading is a second old, and measure the clocks' rate between the two."""
        if perf_counter_ns() - self.axis.host_ns < _EVERY_NS:
            return
        newest, start = self.read(), self._rate_from
        device_ns = newest.device_ns - start.device_ns
        # a device clock that was reset or wrapped tells nothing about the rate
        rate = (newest.host_ns - start.host_ns) / device_ns if device_ns >= _RATE_SPAN_NS else 1.0
        self.axis = HostAxis(newest.device_ns, newest.host_ns, rate, newest.deviation_ns)
        self._rate_from = newest

    def _read_once(self) -> Reading:
        result = self._function(self._device.handle, 2, self._infos, self._times, self._deviation)
        check(result, "reading the device's and the host's clock")
        return Reading(self._device.timestamp_ns(self._times[0]), self._times[1], self._deviation[0])


def open_calibration(device: Device) -> Calibration | None:
    """A calibration of the device's clock against perf_counter_ns; None where the driver offers none."""
    if sys.platform != "linux" or "CLOCK_MONOTONIC" not in get_clock_info("perf_counter").implementation:
        return None
    for suffix in ("KHR", "EXT"):
        if f"VK_{suffix}_calibrated_timestamps" not in device.extensions:
            continue
        domains = instance_function(device.instance.handle, f"vkGetPhysicalDeviceCalibrateableTimeDomains{suffix}")
        function = device_function(device.handle, f"vkGetCalibratedTimestamps{suffix}")
        if domains and function and {_DEVICE, _CLOCK_MONOTONIC} <= _offered(device, domains):
            with suppress(VulkanError):  # a driver that offers it and then fails: no reason to refuse the device
                return Calibration(device, function)
    return None


def _offered(device: Device, domains: Any) -> set[int]:
    count = ffi.new("uint32_t*")
    check(domains(device.physical, count, NULL), "listing time domains")
    found = ffi.new("VkTimeDomainEXT[]", count[0])
    check(domains(device.physical, count, found), "listing time domains")
    return {int(domain) for domain in found}
