"""From Debian package files to a folder that holds one Vulkan driver and nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

from zincchat.cached_driver import LOADER_NAME
from zincchat.setup import child
from zincchat.setup.errors import SetupError

_LIBRARY_FOLDERS = ("usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu")
_DRIVER, _VULKAN_LOADER = "libvulkan_lvp.so", "libvulkan.so.1"
_LAYER = "libVkLayer_khronos_validation.so"
_ICD, _LAYER_MANIFEST = "usr/share/vulkan/icd.d/lvp_icd", "usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation"


def unpack_driver(packages: Iterable[Path], target: Path) -> None:
    """Take the software driver, the Vulkan loader, the validation layer and what they need out of ``packages``.

    Each package file is deleted once it is unpacked. Writes lib/, glibc/, icd/lvp.json and layers/ below ``target``;
    libraries of other drivers and those that nothing here needs are left out. Raises SetupError and OSError.
    """
    folders = {name: target / name for name in ("lib", "glibc", "icd", "layers")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for package in packages:
        libraries = folders["glibc" if package.name.startswith("libc6_") else "lib"]
        _unpack(package, libraries, target)
        package.unlink()
    _keep_needed(folders["lib"], folders["glibc"])
    _write_manifest(target / "icd.json", folders["icd"] / "lvp.json", "ICD", _DRIVER)
    _write_manifest(target / "layer.json", folders["layers"] / "validation.json", "layer", _LAYER)


def _unpack(package: Path, libraries: Path, target: Path) -> None:
    """Libraries into ``libraries``, under their bare names, and the two manifests into ``target``."""
    with subprocess.Popen(
        ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
                for member in archive:
                    path = member.name.removeprefix("./")
                    destination = _destination(path, libraries, target)
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


def _destination(path: str, libraries: Path, target: Path) -> Path | None:
    parent, _, name = path.rpartition("/")
    if parent in _LIBRARY_FOLDERS and ".so" in name:
        other_driver = name.startswith("libvulkan_") and name != _DRIVER
        other_layer = name.startswith("libVkLayer_") and name != _LAYER
        return None if other_driver or other_layer else libraries / name
    if path.startswith(_ICD):
        return target / "icd.json"
    if path.startswith(_LAYER_MANIFEST):
        return target / "layer.json"
    return None


def _keep_needed(lib: Path, glibc: Path) -> None:
    """Delete what the driver, the Vulkan loader and the layer do not link to, as the dynamic loader itself lists it."""
    needed: set[Path] = set()
    for name in (_DRIVER, _VULKAN_LOADER, _LAYER):
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
