"""What Vulkan a process finds, asked in a child process: a broken driver may crash it, or print what it likes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from zincchat.setup import child

_MARK = "zincchat-vulkan: "
_TIMEOUT_S = 60.0
_CPU = 4  # VK_PHYSICAL_DEVICE_TYPE_CPU


@dataclass(frozen=True, slots=True)
class Device:
    """A Vulkan device as far as the choice of driver needs it. ``driver_version`` is Mesa's for Mesa's drivers."""

    name: str
    is_software: bool
    driver_version: tuple[int, int, int]


def vulkan_devices(prefix: Sequence[str] = (), environment: Mapping[str, str] | None = None) -> list[Device]:
    """The devices that a Python started with ``prefix`` and ``environment`` sees; none where anything fails."""
    try:
        done = child.run(
            [*prefix, sys.executable, "-m", "zincchat.setup.probe"], environment=environment, timeout_s=_TIMEOUT_S
        )
    except (OSError, TimeoutError):
        return []
    for line in done.stdout.splitlines():
        if line.startswith(_MARK):
            found = json.loads(line.removeprefix(_MARK))
            return [Device(one["name"], one["is_software"], tuple(one["driver_version"])) for one in found]
    return []


def _enumerate() -> list[Device]:
    import vulkan  # OSError here where the machine has no Vulkan loader

    application = vulkan.VkApplicationInfo(apiVersion=vulkan.VK_MAKE_VERSION(1, 1, 0))
    instance = vulkan.vkCreateInstance(vulkan.VkInstanceCreateInfo(pApplicationInfo=application), None)
    devices = []
    for physical in vulkan.vkEnumeratePhysicalDevices(instance):
        about = vulkan.vkGetPhysicalDeviceProperties(physical)
        raw = about.driverVersion
        devices.append(
            Device(about.deviceName, about.deviceType == _CPU, (raw >> 22, (raw >> 12) & 0x3FF, raw & 0xFFF))
        )
    return devices


if __name__ == "__main__":
    print(_MARK + json.dumps([asdict(device) for device in _enumerate()]), flush=True)
