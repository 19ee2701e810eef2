"""Bringing the driver of the faked card, on request, from packages that the test makes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.zincchat.setup.test_driver import FAKE_LOADER, LIBRARIES, package
from zincchat import cached_driver, faked_card
from zincchat.setup import driver
from zincchat.setup.__main__ import main
from zincchat.setup.apt_sources import Source
from zincchat.setup.errors import SetupError
from zincchat.setup.probe import Device
from zincchat.setup.rdna4 import ensure_faked_card, remove_faked_card


@pytest.fixture
def asked(data: Path, tmp_path: Path, program, monkeypatch) -> list[tuple[list[str], dict[str, str]]]:
    """How the new driver was started to see its card; the mirror has RADV beside the software driver."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    package(
        folder / "mesa-vulkan-drivers_26.1.6-1_amd64.deb",
        {
            f"{LIBRARIES}/libvulkan_lvp.so": "",
            f"{LIBRARIES}/libvulkan_radeon.so": "",
            "./usr/share/vulkan/icd.d/lvp_icd.json": '{"ICD": {"library_path": "libvulkan_lvp.so"}}',
            "./usr/share/vulkan/icd.d/radeon_icd.json": '{"ICD": {"library_path": "libvulkan_radeon.so"}}',
        },
    )
    package(
        folder / "mesa-drm-shim_26.1.6-1_amd64.deb",
        {f"{LIBRARIES}/libamdgpu_noop_drm_shim.so": "", f"{LIBRARIES}/libradeon_noop_drm_shim.so": ""},
    )
    package(folder / "libvulkan1_1.4_amd64.deb", {f"{LIBRARIES}/libvulkan.so.1": ""})
    package(folder / "libc6_2.99-1_amd64.deb", {f"{LIBRARIES}/{cached_driver.LOADER_NAME}": FAKE_LOADER})
    program(
        "apt-get",
        f"""
for word in "$@"; do case "$word" in Dir::Cache=*) cache=${{word#*=}};; esac; done
case "$*" in
  *--print-uris*mesa-drm-shim*)
    for deb in {folder}/*.deb; do echo "'http://mirror.invalid/x' ${{deb##*/}} 1000 SHA256:0"; done;;
  *--download-only*) cp {folder}/*.deb "$cache/archives/";;
esac""",
    )
    program("dpkg-deb", 'cat "$2"')
    started: list[tuple[list[str], dict[str, str]]] = []

    def devices(prefix, environment):
        started.append((prefix, environment))
        return [Device("AMD Radeon Graphics (RADV GFX1201)", False, (26, 1, 6))]

    monkeypatch.setattr(driver, "vulkan_devices", devices)
    monkeypatch.setattr(driver.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(driver, "main_archives", lambda: [Source("http://mirror.invalid/deb", ("x",), ("main",), "")])
    return started


def test_the_faked_cards_driver_is_brought_beside_the_other_one(asked, data, capsys):
    assert main(["--rdna4"]) == 0
    lines = capsys.readouterr().err
    assert lines.index("download about 77 MB, then about 200 MB in ") < lines.index("downloading Mesa 26.1.6-1")
    assert "--remove-rdna4" in lines
    libraries = {path.name for path in (data / "rdna4" / "lib").iterdir()}
    assert libraries == {"libvulkan_radeon.so", "libvulkan.so.1", "libamdgpu_noop_drm_shim.so"}
    assert sorted(path.name for path in data.iterdir()) == [".setup.lock", "rdna4"]
    icd = data / "rdna4" / "icd" / "radeon.json"
    assert (icd.parent / json.loads(icd.read_text())["ICD"]["library_path"]).is_file()
    assert cached_driver.chosen() is None


def test_the_card_is_seen_before_the_driver_is_kept(asked, data):
    ensure_faked_card()
    ((prefix, environment),) = asked
    assert prefix[-2] == "--preload"
    assert prefix[-1].endswith("/libamdgpu_noop_drm_shim.so")
    assert environment["AMDGPU_GPU_ID"] == "gfx1201"
    assert environment["VK_DRIVER_FILES"].endswith("/icd/radeon.json")


def test_a_driver_that_sees_another_card_is_not_kept(asked, data, monkeypatch):
    monkeypatch.setattr(driver, "vulkan_devices", lambda *_: [Device("AMD Radeon (RADV NAVI31)", False, (26, 1, 6))])
    with pytest.raises(SetupError, match="does not work on this machine"):
        ensure_faked_card()
    assert sorted(path.name for path in data.iterdir()) == [".setup.lock"]


def test_it_is_not_brought_twice_and_can_be_removed(asked, data, monkeypatch, capsys):
    ensure_faked_card()
    ensure_faked_card()
    assert len(asked) == 1
    assert faked_card.load() is not None
    assert main(["--remove-rdna4"]) == 0
    assert not (data / "rdna4").exists()
    assert not remove_faked_card()


def test_the_ordinary_setup_does_not_bring_it(asked, data, monkeypatch):
    monkeypatch.setattr("zincchat.setup.__main__.fetch_model", lambda model: None)
    monkeypatch.setattr("zincchat.setup.__main__.ensure_driver", lambda: None)
    assert main([]) == 0
    assert not (data / "rdna4").exists()
