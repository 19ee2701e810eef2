"""Clocks, as the programs and files of GPU makers state them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.zincchat.cli.fake_engine import FakeDevice
from zincchat.bench import host

TWO_GPUS = "NVIDIA H200, 1980, 3201, 35, 120.52\nNVIDIA A2, 1770, 6251, 40, [N/A]\n"


def test_the_gpu_is_found_by_its_name() -> None:
    reading = host.parse_nvidia(TWO_GPUS, "NVIDIA A2")
    assert reading == {
        "source": "nvidia-smi",
        "core_mhz": 1770.0,
        "memory_mhz": 6251.0,
        "temperature_c": 40.0,
        "power_w": None,
    }


@pytest.mark.parametrize("text", ["", TWO_GPUS * 2, "NVIDIA-SMI has failed", "NVIDIA H200, 1980\n"])
def test_clocks_that_cannot_be_told_are_none(text: str) -> None:
    assert host.parse_nvidia(text, "NVIDIA H200") is None


def test_without_nvidia_smi_there_are_no_clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert host.device_clocks(FakeDevice(name="NVIDIA H200", is_software=False)) is None  # type: ignore[arg-type]


def test_amdgpu_marks_the_active_level(tmp_path: Path) -> None:
    card = tmp_path / "card1" / "device"
    sensors = card / "hwmon" / "hwmon3"
    sensors.mkdir(parents=True)
    (tmp_path / "card1-DP-1").mkdir()
    (card / "vendor").write_text("0x1002\n")
    (card / "pp_dpm_sclk").write_text("0: 500Mhz\n1: 2460Mhz *\n2: 2700Mhz\n")
    (card / "pp_dpm_mclk").write_text("0: 96Mhz\n1: 1258Mhz *\n")
    (sensors / "temp1_input").write_text("51000\n")
    (sensors / "power1_average").write_text("211000000\n")
    assert host.amd_clocks(tmp_path) == {
        "source": "amdgpu",
        "core_mhz": 2460.0,
        "memory_mhz": 1258.0,
        "temperature_c": 51.0,
        "power_w": 211.0,
    }
    (card / "vendor").write_text("0x8086\n")
    assert host.amd_clocks(tmp_path) is None


def test_a_software_device_has_the_computers_load() -> None:
    reading = host.device_clocks(FakeDevice())  # type: ignore[arg-type]
    assert reading is not None
    assert reading["load_1min"] >= 0
    assert host.host_cpu()
    assert host.host_cpus() >= 1
