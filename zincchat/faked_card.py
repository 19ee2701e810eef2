"""RADV for an RDNA4 card that is not there: kernels compile and command buffers record, and nothing is executed.

mesa-drm-shim answers for the kernel's side of the card: a library that the process is started with, so a process can
see the card only under a dynamic loader told to load it. What is submitted is dropped, and memory reads as it was.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from zincchat import cached_driver
from zincchat.cached_driver import CachedDriver
from zincchat.paths import data_dir

CARD = "gfx1201"  # the processor of a Radeon RX 9070 XT
SHIM = "libamdgpu_noop_drm_shim.so"
DRIVER = "radeon"


@dataclass(frozen=True, slots=True)
class FakedCard(CachedDriver):
    """The driver and the shim in ``folder``, laid out as ``cached_driver`` describes it."""

    def prefix(self) -> list[str]:
        """What goes before a program and its arguments so that it starts with the shim."""
        return [*CachedDriver.prefix(self), "--preload", str(self.folder / "lib" / SHIM)]

    def start_environment(self) -> dict[str, str]:
        """Variables that a process starts with: which card to fake, and no warning on stderr that it is untested."""
        return {"AMDGPU_GPU_ID": CARD, "MESA_VK_IGNORE_CONFORMANCE_WARNING": "true"}

    def environment(self) -> dict[str, str]:
        """Variables that make the Vulkan loader take this driver and no layers; with ``start_environment``."""
        return self.start_environment() | {
            "VK_DRIVER_FILES": str(self.folder / "icd" / f"{DRIVER}.json"),
            "VK_LOADER_LAYERS_DISABLE": "~implicit~",
        }


def folder() -> Path:
    """Where the driver lies, or will lie."""
    return data_dir() / "rdna4"


def load(where: Path | None = None) -> FakedCard | None:
    """The driver in ``where`` (the data folder's by default); None where there is none that is whole."""
    where = where or folder()
    driver = cached_driver.load(where)
    return FakedCard(where, driver.glibc) if driver and (where / "lib" / SHIM).is_file() else None
