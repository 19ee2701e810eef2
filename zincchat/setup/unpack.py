"""From Debian package files to a folder that holds one Vulkan driver and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from zincchat.cached_driver import LOADER_NAME
from zincchat.setup import child
from zincchat.setup.errors import SetupError

_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
_VULKAN_LOADER = "libvulkan.so.1"
_ICDS, _LAYERS = "usr/share/vulkan/icd.d/", "usr/share/vulkan/explicit_layer.d/"


@dataclass(frozen=True, slots=True)
class Contents:
    """What a driver's folder holds.

    ``packages`` and what they depend on are where it comes from, ``driver`` the driver's name in the files of Mesa
    (lvp, radeon), ``layer`` the library of a layer to keep, ``preload`` a library that programs are started with.
    """

    packages: tuple[str, ...]
    driver: str
    layer: str | None = None
    preload: str | None = None

    @property
    def driver_library(self) -> str:
        """File name of the driver's library."""
        return f"libvulkan_{self.driver}.so"

    @property
    def libraries(self) -> list[str]:
        """File names of the libraries that are there for their own sake."""
        names = (self.driver_library, _VULKAN_LOADER, self.layer, self.preload)
        return [name for name in names if name is not None]


def unpack_driver(packages: Iterable[Path], target: Path, contents: Contents) -> None:
    """Take the driver, the Vulkan loader, the layer and what they need out of ``packages``.

    Each package file is deleted once it is unpacked. Writes lib/, glibc/, icd/DRIVER.json and layers/ below
    ``target``; libraries of other drivers and those that nothing here needs are left out. Raises SetupError and
    OSError.
    """
    folders = {name: target / name for name in ("lib", "glibc", "icd", "layers")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for package in packages:
        libraries = folders["glibc" if package.name.startswith("libc6_") else "lib"]
        _unpack(package, libraries, target, contents)
        package.unlink()
    _keep_needed(folders["lib"], folders["glibc"], contents)
    icd = folders["icd"] / f"{contents.driver}.json"
    _write_manifest(target / "icd.json", icd, "ICD", contents.driver_library)
    if contents.layer is not None:
        _write_manifest(target / "layer.json", folders["layers"] / "validation.json", "layer", contents.layer)


def _unpack(package: Path, libraries: Path, target: Path, contents: Contents) -> None:
    """Libraries into ``libraries``, under their bare names, and the two manifests into ``target``."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    path = member.name.removeprefix("./")
                    destination = _destination(path, libraries, target, contents)
                    if destination is None:
                        continue
                    if member.issym() and "/" not in member.linkname:
                        destination.symlink_to(member.linkname)
                    elif member.isfile() and (source := archive.extractfile(member)) is not None:
                        with destination.open("wb") as sink:
                            shutil.copyfileobj(source, sink, 1 << 20)
                        destination.chmod(0o755)
        except tarfile.TarError as error:
            raise SetupError(f"the package {package.name} is damaged: try again", str(error)) from error
    if process.returncode != 0:
        raise SetupError(f"the package {package.name} cannot be unpacked: see that the program dpkg-deb works here")


def _destination(path: str, libraries: Path, target: Path, contents: Contents) -> Path | None:
    parent, _, name = path.rpartition("/")
    if parent in _LIBRARY_FOLDERS and ".so" in name:
        one_of_many = name.startswith(("libvulkan_", "libVkLayer_")) or name.endswith("_drm_shim.so")
        return None if one_of_many and name not in contents.libraries else libraries / name
    if path.startswith(f"{_ICDS}{contents.driver}_icd"):
        return target / "icd.json"
    if contents.layer is not None and path.startswith(_LAYERS + contents.layer.removeprefix("lib").removesuffix(".so")):
        return target / "layer.json"
    return None


def _keep_needed(lib: Path, glibc: Path, contents: Contents) -> None:
    """Delete what the libraries that are wanted do not link to, as the dynamic loader itself lists it."""
    needed: set[Path] = set()
    for name in contents.libraries:
        if not (lib / name).exists():
            raise SetupError(f"the downloaded packages lack {name}: try again another day, the suite is changing")
        listed = child.run([glibc / LOADER_NAME, "--library-path", f"{lib}:{glibc}", "--list", lib / name])
        if listed.status != 0 or "not found" in listed.stdout:
            raise SetupError(
                f"the downloaded {name} cannot be loaded here: see that {lib.parent.parent} allows programs to run",
                listed.output,
            )
        needed.add(lib / name)
        needed.update(Path(word) for word in listed.stdout.split() if word.startswith(f"{lib}/"))
    keep = needed | {path.resolve() for path in needed}
    for path in lib.iterdir():
        if path not in keep:
            path.unlink()


def _write_manifest(source: Path, destination: Path, key: str, library: str) -> None:
    """The package's own manifest with a path relative to it, so that the driver's folder can be moved."""
    try:
        content = json.loads(source.read_text())
        content[key]["library_path"] = f"../lib/{library}"
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(f"the downloaded packages lack a usable manifest for {library}", str(error)) from error
    destination.write_text(json.dumps(content, indent=1) + "\n")
    source.unlink()
