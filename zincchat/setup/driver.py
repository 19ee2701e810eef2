"""A Vulkan driver that can run the engine: the machine's own where it will do, else a software driver of our own."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zincchat import cached_driver
from zincchat.cached_driver import CachedDriver
from zincchat.paths import data_dir
from zincchat.setup.apt import Package, PrivateApt, Unreachable
from zincchat.setup.apt_sources import Source, main_archives
from zincchat.setup.console import megabytes, say
from zincchat.setup.errors import SetupError
from zincchat.setup.folders import require_space, size_bytes, staging, write_atomically
from zincchat.setup.probe import Device, vulkan_devices
from zincchat.setup.unpack import Contents, unpack_driver

OLDEST_MESA = 25
_SUITES = ("forky", "trixie")  # the first has the faster driver; mirrors that do not carry it yet have the second
_INDEX_BYTES = 35_000_000  # the index as apt keeps it, with room to grow
_DISK_BYTES = 300_000_000  # what lies on the disk at most while it is unpacked
_ICD_FOLDERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
_DEVICES = ("dri/*", "nvidia[0-9]*")  # below /dev
_VULKAN_LOADERS = ("/usr/lib/x86_64-linux-gnu/libvulkan.so.1", "/usr/lib64/libvulkan.so.1", "/usr/lib/libvulkan.so.1")


@dataclass(frozen=True, slots=True)
class Bringing:
    """A driver that can be brought: what is in it, where it goes and how to see that it works.

    ``download_bytes`` and ``kept_bytes`` are told before the index, which is part of the download, says them exactly.
    """

    contents: Contents
    folder: Callable[[], Path]
    load: Callable[[Path], CachedDriver | None]
    works: Callable[[Device], bool]
    download_bytes: int
    kept_bytes: int
    remove_option: str


def ensure_driver() -> None:
    """Choose the driver that the launcher will start on, bringing the software one where nothing else will do.

    The choice is kept, and made again only when the machine's drivers or graphics devices change. Raises SetupError
    where there is no usable driver and none can be brought.
    """
    if os.environ.get("ZINCCHAT_DRIVER") == "system" or cached_driver.user_names_driver():
        return
    fingerprint, kept = _fingerprint(), cached_driver.choice()
    if kept.get("fingerprint") == fingerprint and (kept.get("use") == "system" or cached_driver.load()):
        return
    devices = vulkan_devices()
    if any(is_good_enough(device) for device in devices):
        _keep_choice("system", fingerprint)
        return
    software = next(iter(devices), None)
    if cached_driver.load() is None:
        say(_why(software))
        try:
            bring(SOFTWARE)
        except SetupError as error:
            if software is None:
                raise
            say(f"{error}; going on with {software.name}, which will be slow")
            return
    _keep_choice("cached", fingerprint)


def remove_driver() -> bool:
    """Delete the cached driver and the choice; False where there was none. Raises SetupError."""
    present = cached_driver.folder().exists()
    if present or cached_driver.choice_file().exists():
        with staging(data_dir(), "removing the driver") as folder:
            cached_driver.choice_file().unlink(missing_ok=True)
            if present:
                cached_driver.folder().rename(folder / "driver")
    return present


def is_good_enough(device: Device) -> bool:
    """True for every graphics device, and for a software one that is recent enough to be usable."""
    return not device.is_software or device.driver_version >= (OLDEST_MESA, 0, 0)


SOFTWARE = Bringing(
    contents=Contents(
        ("mesa-vulkan-drivers", "libvulkan1", "vulkan-validationlayers"), "lvp", "libVkLayer_khronos_validation.so"
    ),
    folder=cached_driver.folder,
    load=cached_driver.load,
    works=is_good_enough,
    download_bytes=84_000_000,
    kept_bytes=220_000_000,
    remove_option="--remove-driver",
)


def _why(software: Device | None) -> str:
    if software is None:
        return "this machine has no Vulkan driver; bringing a software one, which needs no root"
    return (
        f"this machine has only an old software Vulkan driver ({software.name}, Mesa before {OLDEST_MESA}); "
        "bringing a recent one, which needs no root"
    )


def bring(wanted: Bringing) -> CachedDriver:
    """The driver in its folder, fetched from the Debian mirror that the machine's apt uses. Raises SetupError."""
    source = _source()
    place = wanted.folder()
    say(
        f"download about {megabytes(wanted.download_bytes)}, then about {megabytes(wanted.kept_bytes)} in {place} "
        f"(remove it with: {sys.executable} -m zincchat.setup {wanted.remove_option})"
    )
    doing = "bringing the Vulkan driver"
    with staging(data_dir(), doing) as folder:
        if present := wanted.load(place):  # another setup was faster
            return present
        require_space(folder, wanted.download_bytes + _INDEX_BYTES + _DISK_BYTES, doing)
        apt, packages = _open_suite(folder, source, wanted.contents)
        total_bytes = sum(package.size_bytes for package in packages)
        mesa = next(package.version for package in packages if package.name == "mesa-vulkan-drivers")
        say(f"downloading Mesa {mesa} from Debian {apt.suite}: {len(packages)} packages, {megabytes(total_bytes)}")
        files = apt.download(wanted.contents.packages, total_bytes)
        say("unpacking the driver")
        built = folder / "driver"
        unpack_driver(files, built, wanted.contents)
        _finish(built, apt.suite, packages, wanted)
        if place.exists():  # one that is not whole
            place.rename(folder / "replaced")
        built.rename(place)
        brought = wanted.load(place)
        assert brought is not None
        return brought


def _source() -> Source:
    """The mirror to use; raises SetupError, naming the package to install, where this cannot work."""
    machine = platform.machine()
    if machine != "x86_64":
        raise SetupError(f"no software driver can be brought to a {machine} machine: {_package_advice()}")
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        raise SetupError(f"no software driver can be brought to a system without apt: {_package_advice()}")
    sources = main_archives()
    if not sources:
        raise SetupError(f"apt's sources name no Debian mirror for this release: {_package_advice()}")
    return sources[0]


def _package_advice() -> str:
    for program, command in (
        ("apt-get", "sudo apt-get install mesa-vulkan-drivers"),
        ("dnf", "sudo dnf install mesa-vulkan-drivers vulkan-loader"),
        ("pacman", "sudo pacman -S vulkan-swrast vulkan-icd-loader"),
        ("zypper", "sudo zypper install libvulkan_lvp libvulkan1"),
        ("apk", "sudo apk add mesa-vulkan-swrast vulkan-loader"),
    ):
        if shutil.which(program):
            return f"install one with: {command}"
    return "install your system's Vulkan loader and the package mesa-vulkan-drivers (elsewhere vulkan-swrast)"


def _open_suite(folder: Path, source: Source, contents: Contents) -> tuple[PrivateApt, list[Package]]:
    """The first suite that the mirror carries, with the packages to fetch from it."""
    failures: list[SetupError] = []
    for suite in _SUITES:
        apt = PrivateApt(folder / suite, source, suite)
        try:
            apt.update()
            return apt, apt.plan(contents.packages)
        except SetupError as error:
            failures.append(error)
            if isinstance(error, Unreachable):
                break
    details = "\n".join(failure.detail for failure in failures)
    raise SetupError(f"{failures[-1]}, or {_package_advice()}", details)


def _finish(built: Path, suite: str, packages: list[Package], wanted: Bringing) -> None:
    """Write the manifest, then see that a process on this driver finds its device."""
    versions = {package.name: package.version for package in packages}
    glibc = re.match(r"\d+\.\d+", versions.get("libc6", ""))
    manifest = {
        "glibc": glibc[0] if glibc else "0",
        "mesa": versions["mesa-vulkan-drivers"],
        "suite": suite,
        "size_bytes": size_bytes(built),
        "packages": versions,
    }
    (built / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    driver = wanted.load(built)
    devices = vulkan_devices(driver.prefix(), os.environ | driver.environment()) if driver else []
    if not any(wanted.works(device) for device in devices):
        raise SetupError(f"the downloaded Vulkan driver does not work on this machine: {_package_advice()}")


def _keep_choice(use: str, fingerprint: list[str]) -> None:
    with staging(data_dir(), "keeping the choice of driver"):
        write_atomically(cached_driver.choice_file(), json.dumps({"use": use, "fingerprint": fingerprint}) + "\n")


def _fingerprint() -> list[str]:
    """What the choice rests on, cheap to read: the Vulkan loaders, driver manifests and graphics devices there are."""
    marks = [path for path in _VULKAN_LOADERS if Path(path).exists()]
    user = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share", "vulkan/icd.d")
    for folder in (*_ICD_FOLDERS, str(user)):
        marks += sorted(f"{path} {path.stat().st_mtime_ns}" for path in Path(folder).glob("*.json"))
    for pattern in _DEVICES:
        marks += sorted(str(path) for path in Path("/dev").glob(pattern))
    return marks
