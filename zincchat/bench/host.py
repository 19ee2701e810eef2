"""The computer a measurement ran on, and how fast its device was clocked."""

from __future__ import annotations

import contextlib
import platform
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from engine import DeviceInfo

_NVIDIA_FIELDS = ("name", "clocks.sm", "clocks.mem", "temperature.gpu", "power.draw")
_AMD_VENDOR = "0x1002"


def host_cpu() -> str:
    """The processor's name."""
    name = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                name = line.partition(":")[2].strip()
                break
    return name


def host_cpus() -> int:
    """Logical CPUs that this process may run on."""
    return len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count() or 1


def host_rss_bytes() -> int:
    """Memory of this process."""
    return int(psutil.Process().memory_info().rss)


def device_clocks(device: DeviceInfo) -> dict[str, Any] | None:
    """The device's clocks now, with ``source``; None where nothing on this system tells them.

    A software device has ``cpu_mhz, governor, load_1min``, a GPU ``core_mhz, memory_mhz, temperature_c, power_w``,
    each None where it alone is unknown.
    """
    if device.is_software:
        return _cpu_clocks()
    maker = f"{device.name} {device.driver}".lower()
    if "nvidia" in maker:
        return _nvidia_clocks(device.name)
    if "amd" in maker or "radeon" in maker:
        return amd_clocks(Path("/sys/class/drm"))
    return None


def _cpu_clocks() -> dict[str, Any]:
    mhz = None
    with contextlib.suppress(OSError, RuntimeError, AttributeError):
        frequency = psutil.cpu_freq()
        mhz = round(frequency.current) if frequency is not None else None
    governor = _read(Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"))
    return {"source": "psutil", "cpu_mhz": mhz, "governor": governor, "load_1min": round(psutil.getloadavg()[0], 2)}


def _nvidia_clocks(name: str) -> dict[str, Any] | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    query = [program, f"--query-gpu={','.join(_NVIDIA_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_nvidia(answer.stdout, name)


def parse_nvidia(text: str, name: str) -> dict[str, Any] | None:
    """The one GPU called ``name`` in nvidia-smi's CSV; None where several are, since nothing tells them apart."""
    rows = [[cell.strip() for cell in line.split(",")] for line in text.splitlines() if line.strip()]
    rows = [row for row in rows if len(row) == len(_NVIDIA_FIELDS) and row[0] == name]
    if len(rows) != 1:
        return None
    core, memory, temperature, power = (_number(cell) for cell in rows[0][1:])
    return _gpu("nvidia-smi", core, memory, temperature, power)


def amd_clocks(drm: Path) -> dict[str, Any] | None:
    """The one AMD card under ``drm`` (/sys/class/drm), by amdgpu's own files; None where there is not exactly one."""
    cards = [card / "device" for card in sorted(drm.glob("card[0-9]*")) if "-" not in card.name]
    cards = [card for card in cards if _read(card / "vendor") == _AMD_VENDOR]
    if len(cards) != 1:
        return None
    card = cards[0]
    sensors = next(iter(sorted(card.glob("hwmon/hwmon*"))), card)
    millidegrees = _number(_read(sensors / "temp1_input"))
    microwatts = _number(_read(sensors / "power1_average")) or _number(_read(sensors / "power1_input"))
    return _gpu(
        "amdgpu",
        _active_mhz(_read(card / "pp_dpm_sclk")),
        _active_mhz(_read(card / "pp_dpm_mclk")),
        None if millidegrees is None else millidegrees / 1e3,
        None if microwatts is None else microwatts / 1e6,
    )


def _gpu(
    source: str, core: float | None, memory: float | None, temperature: float | None, power: float | None
) -> dict[str, Any]:
    return {
        "source": source,
        "core_mhz": core,
        "memory_mhz": memory,
        "temperature_c": temperature,
        "power_w": power,
    }


def _active_mhz(levels: str | None) -> float | None:
    """The clock of the line that ends with an asterisk: "1: 2400Mhz *"."""
    for line in (levels or "").splitlines():
        if line.endswith("*"):
            return _number(line.partition(":")[2].strip(" *").lower().removesuffix("mhz"))
    return None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
