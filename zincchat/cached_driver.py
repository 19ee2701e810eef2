"""The software Vulkan driver that the setup keeps in the data folder, and how a process comes to run on it.

The driver is built against a newer C library than the machine may have, so a process can use it only when it starts
under the dynamic loader that came with it. Its folder holds::

    lib/            the Vulkan loader, the driver, the validation layer and the libraries they need
    glibc/          the C library's own family and the dynamic loader
    icd/ layers/    the manifests that the Vulkan loader reads, with relative paths
    manifest.json   package versions, sizes, and the version of glibc/
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zincchat.paths import data_dir

LOADER_NAME = "ld-linux-x86-64.so.2"
_SYSTEM_LOADER = Path("/lib64") / LOADER_NAME


@dataclass(frozen=True, slots=True)
class CachedDriver:
    """The driver in ``folder``; ``glibc`` is the version of the C library it brings, such as (2, 43)."""

    folder: Path
    glibc: tuple[int, ...]

    @property
    def brings_newer_glibc(self) -> bool:
        """False where the machine's C library is as new: then the driver runs on that, as all else there does."""
        return self.glibc > system_glibc()

    def prefix(self) -> list[str]:
        """What goes before a program and its arguments so that it starts on this driver's libraries."""
        folders = [str(self.folder / "lib")]
        loader = _SYSTEM_LOADER
        if self.brings_newer_glibc:
            folders.append(str(self.folder / "glibc"))
            loader = self.folder / "glibc" / LOADER_NAME
        if inherited := os.environ.get("LD_LIBRARY_PATH"):
            folders.append(inherited)  # the option replaces the variable in this process
        return [str(loader), "--library-path", ":".join(folders)]

    def environment(self) -> dict[str, str]:
        """Variables that make the Vulkan loader take this driver and its layers, and none of the machine's."""
        return {
            "VK_DRIVER_FILES": str(self.folder / "icd" / "lvp.json"),
            "VK_ADD_LAYER_PATH": str(self.folder / "layers"),
            "VK_LOADER_LAYERS_DISABLE": "~implicit~",  # the machine's own are built for another C library
        }

    @property
    def runs_here(self) -> bool:
        """True where this very process was started with ``prefix()``: its command line says so, no variable does."""
        prefix = [os.fsencode(word) for word in self.prefix()]
        return Path("/proc/self/cmdline").read_bytes().split(b"\0")[: len(prefix)] == prefix


def folder() -> Path:
    """Where the driver lies, or will lie."""
    return data_dir() / "driver"


def load(where: Path | None = None) -> CachedDriver | None:
    """The driver in ``where`` (the data folder's by default); None where there is none that is whole."""
    where = where or folder()
    manifest = _read_json(where / "manifest.json")
    try:
        glibc = tuple(int(part) for part in manifest["glibc"].split("."))
    except (KeyError, ValueError, AttributeError):
        return None
    return CachedDriver(where, glibc) if (where / "glibc" / LOADER_NAME).is_file() else None


def choice_file() -> Path:
    """The file in which the setup leaves its choice: {"use": "system" or "cached", ...}."""
    return data_dir() / "driver.json"


def choice() -> dict[str, Any]:
    """The setup's choice; empty where it made none."""
    return _read_json(choice_file())


def chosen() -> CachedDriver | None:
    """The cached driver, if this process is to use it; None means the machine's own drivers.

    The machine's own win where ZINCCHAT_DRIVER=system, where the user already names a driver to the Vulkan loader, and
    where the setup found them good enough.
    """
    if os.environ.get("ZINCCHAT_DRIVER") == "system" or user_names_driver():
        return None
    return load() if choice().get("use") == "cached" else None


def user_names_driver() -> bool:
    """True where the environment tells the Vulkan loader which driver to take."""
    return any(os.environ.get(name) for name in ("VK_DRIVER_FILES", "VK_ICD_FILENAMES"))


def system_glibc() -> tuple[int, ...]:
    """Version of the machine's own C library, whichever one this process runs on; () where it is not glibc.

    Read from the library's file: a process under the cached loader would be told that loader's version.
    """
    for path in ("/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"):
        try:
            found = re.search(rb"GNU C Library [^\n]*version (\d+)\.(\d+)", Path(path).read_bytes())
        except OSError:
            continue
        if found:
            return int(found[1]), int(found[2])
    return ()


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
