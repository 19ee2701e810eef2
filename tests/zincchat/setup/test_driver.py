"""Which driver the setup chooses, and bringing one from packages that the test makes."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import pytest

from zincchat import cached_driver
from zincchat.setup import driver, folders
from zincchat.setup.apt_sources import Source
from zincchat.setup.driver import ensure_driver, is_good_enough, remove_driver
from zincchat.setup.errors import SetupError
from zincchat.setup.probe import Device, vulkan_devices

GPU = Device("a graphics card", False, (1, 0, 0))
OLD_SOFTWARE = Device("llvmpipe (old)", True, (0, 0, 1))  # how Mesa before 25 numbers itself there
NEW_SOFTWARE = Device("llvmpipe (new)", True, (26, 1, 6))
LIBRARIES = "./usr/lib/x86_64-linux-gnu"

# Stands in for the dynamic loader: lists what a library needs as ld.so does, from the file itself.
FAKE_LOADER = '#!/bin/sh\nwhile read name; do printf "\\t%s => ${2%%:*}/%s (0x0)\\n" $name $name; done <"$4"\n'


@pytest.fixture
def machine(data, monkeypatch):
    """A machine whose devices the test sets: ``machine.own`` without the cached driver, ``machine.cached`` on it."""

    class Machine:
        own: list[Device] = []  # noqa: RUF012 - set by each test
        cached: list[Device] = [NEW_SOFTWARE]  # noqa: RUF012
        marks: list[str] = []  # noqa: RUF012
        asked = 0

    state = Machine()

    def devices(prefix=(), environment=None):
        state.asked += 1
        return state.cached if prefix else state.own

    monkeypatch.setattr(driver, "vulkan_devices", devices)
    monkeypatch.setattr(driver, "_fingerprint", lambda: list(state.marks))
    monkeypatch.setattr(driver.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(driver, "main_archives", lambda: [Source("http://mirror.invalid/deb", ("x",), ("main",), "")])
    return state


def package(path: Path, files: dict[str, str], links: dict[str, str] | None = None) -> None:
    """What the fake dpkg-deb prints for a package: a tar of ``files`` (text) and symbolic ``links``."""
    with tarfile.open(path, "w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, BytesIO(text.encode()))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            archive.addfile(member)


@pytest.fixture
def mirror(tmp_path: Path, program: Callable[[str, str], Path]) -> Path:
    """A mirror with the three packages (and a C library) that apt-get and dpkg-deb hand out; its folder."""
    folder = tmp_path / "mirror"
    folder.mkdir()
    package(
        folder / "mesa-vulkan-drivers_26.1.6-1_amd64.deb",
        {
            f"{LIBRARIES}/libvulkan_lvp.so": "libneeded.so.1\n",
            f"{LIBRARIES}/libvulkan_radeon.so": "libneeded.so.1\n",
            "./usr/share/vulkan/icd.d/lvp_icd.x86_64.json": '{"ICD": {"library_path": "libvulkan_lvp.so"}}',
            "./usr/share/doc/mesa-vulkan-drivers/copyright": "text",
        },
    )
    package(
        folder / "libneeded1_1.0_amd64.deb",
        {f"{LIBRARIES}/libneeded.so.1.2": "", f"{LIBRARIES}/libunused.so.1": ""},
        {f"{LIBRARIES}/libneeded.so.1": "libneeded.so.1.2"},
    )
    package(folder / "libvulkan1_1.4_amd64.deb", {f"{LIBRARIES}/libvulkan.so.1": ""})
    package(folder / "libc6_2.99-1_amd64.deb", {f"{LIBRARIES}/{cached_driver.LOADER_NAME}": FAKE_LOADER})
    package(
        folder / "vulkan-validationlayers_1.4_amd64.deb",
        {
            f"{LIBRARIES}/libVkLayer_khronos_validation.so": "",
            "./usr/share/vulkan/explicit_layer.d/VkLayer_khronos_validation.json": '{"layer": {"library_path": "x"}}',
        },
    )
    program(
        "apt-get",
        f"""
for word in "$@"; do case "$word" in Dir::Cache=*) cache=${{word#*=}};; esac; done
case "$*" in
  *--print-uris*) for deb in {folder}/*.deb; do echo "'http://mirror.invalid/x' ${{deb##*/}} 1000 SHA256:0"; done;;
  *--download-only*) cp {folder}/*.deb "$cache/archives/";;
esac""",
    )
    program("dpkg-deb", 'cat "$2"')
    return folder


def assert_nothing_left(data: Path) -> None:
    assert not (data / "driver").exists()
    assert not (data / "driver.json").exists()
    assert list(data.glob(".partial-*")) == []


def test_which_devices_are_good_enough():
    assert is_good_enough(GPU)
    assert is_good_enough(NEW_SOFTWARE)
    assert not is_good_enough(OLD_SOFTWARE)
    assert not is_good_enough(Device("llvmpipe", True, (24, 3, 1)))


@pytest.mark.parametrize("own", [[GPU], [NEW_SOFTWARE], [OLD_SOFTWARE, GPU]])
def test_the_machines_own_driver_is_used_where_it_will_do(machine, data, own, capsys):
    machine.own = own
    ensure_driver()
    assert cached_driver.choice()["use"] == "system"
    assert cached_driver.chosen() is None
    assert not (data / "driver").exists()
    assert capsys.readouterr().err == ""


def test_the_choice_is_kept_until_the_machine_changes(machine):
    machine.own = [GPU]
    ensure_driver()
    ensure_driver()
    assert machine.asked == 1
    machine.marks = ["a new graphics card"]
    ensure_driver()
    assert machine.asked == 2


@pytest.mark.parametrize(
    ("own", "said"),
    [
        ([], "this machine has no Vulkan driver"),
        ([OLD_SOFTWARE], r"this machine has only an old software Vulkan driver (llvmpipe (old), Mesa before 25)"),
    ],
)
def test_a_driver_is_brought_where_none_will_do(machine, mirror, data, own, said, capsys):
    machine.own = own
    ensure_driver()
    lines = capsys.readouterr().err
    assert said in lines
    assert lines.index("download about 84 MB") < lines.index("downloading Mesa 26.1.6-1 from Debian forky: 5 packages")
    chosen = cached_driver.chosen()
    assert chosen is not None
    assert chosen.folder == data / "driver"
    assert chosen.glibc == (2, 99)
    assert json.loads((data / "driver" / "manifest.json").read_text())["mesa"] == "26.1.6-1"


def test_only_what_the_driver_needs_is_kept_and_the_downloads_go(machine, mirror, data):
    ensure_driver()
    libraries = {path.name for path in (data / "driver" / "lib").iterdir()}
    assert libraries == {
        "libvulkan_lvp.so",
        "libvulkan.so.1",
        "libVkLayer_khronos_validation.so",
        "libneeded.so.1",
        "libneeded.so.1.2",
    }
    assert list(data.rglob("*.deb")) == []
    assert sorted(path.name for path in data.iterdir()) == [".setup.lock", "driver", "driver.json"]


def test_the_manifests_point_into_the_drivers_folder(machine, mirror, data):
    ensure_driver()
    for manifest, key in ((data / "driver/icd/lvp.json", "ICD"), (data / "driver/layers/validation.json", "layer")):
        library = json.loads(manifest.read_text())[key]["library_path"]
        assert (manifest.parent / library).is_file()


def test_a_cached_driver_is_not_brought_twice(machine, mirror, data, monkeypatch):
    ensure_driver()
    monkeypatch.setattr(driver, "bring", lambda wanted: pytest.fail("brought again"))
    ensure_driver()
    (data / "driver.json").unlink()
    ensure_driver()
    assert cached_driver.chosen() is not None


def test_an_unfinished_driver_is_replaced(machine, mirror, data):
    (data / "driver" / "lib").mkdir(parents=True)
    (data / "driver" / "lib" / "old.so").write_text("")
    ensure_driver()
    assert not (data / "driver" / "lib" / "old.so").exists()
    assert cached_driver.chosen() is not None


def test_the_older_suite_is_taken_where_the_mirror_lacks_the_newer(machine, mirror, data, program, tmp_path):
    apt = (tmp_path / "bin" / "apt-get").read_text()
    program(
        "apt-get",
        f"""case "$*" in *forky*update) echo "does not have a Release file" >&2; exit 100;; esac\n{apt}""",
    )
    ensure_driver()
    assert json.loads((data / "driver" / "manifest.json").read_text())["suite"] == "trixie"


def test_a_mirror_out_of_reach_is_one_line_that_names_the_package(machine, mirror, data, program, tmp_path):
    program("apt-get", f"echo called >>{tmp_path}/calls; echo \"Temporary failure resolving 'mirror'\" >&2; exit 100")
    with pytest.raises(SetupError) as caught:
        ensure_driver()
    assert "the mirror cannot be reached: check the network connection" in str(caught.value)
    assert "sudo apt-get install mesa-vulkan-drivers" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "calls").read_text() == "called\n"
    assert_nothing_left(data)


def test_an_old_driver_serves_on_where_no_other_can_be_brought(machine, mirror, data, program, capsys):
    machine.own = [OLD_SOFTWARE]
    program("apt-get", "echo \"Could not resolve 'mirror.invalid'\" >&2; exit 100")
    ensure_driver()
    assert "going on with llvmpipe (old), which will be slow" in capsys.readouterr().err
    assert cached_driver.chosen() is None
    assert_nothing_left(data)


def test_another_processor_is_named(machine, data, monkeypatch):
    monkeypatch.setattr(driver.platform, "machine", lambda: "aarch64")
    with pytest.raises(SetupError, match=r"to a aarch64 machine: install .*(mesa-vulkan-drivers|vulkan-swrast)"):
        ensure_driver()
    assert not data.exists()


@pytest.mark.parametrize(
    ("programs", "advice"),
    [
        (["dnf"], "sudo dnf install mesa-vulkan-drivers vulkan-loader"),
        (["pacman"], "sudo pacman -S vulkan-swrast vulkan-icd-loader"),
        ([], "install your system's Vulkan loader and the package mesa-vulkan-drivers"),
    ],
)
def test_a_system_without_apt_names_its_package(machine, data, monkeypatch, programs, advice):
    monkeypatch.setattr(driver.shutil, "which", lambda name: f"/usr/bin/{name}" if name in programs else None)
    with pytest.raises(SetupError) as caught:
        ensure_driver()
    assert advice in str(caught.value)
    assert not data.exists()


def test_a_disk_too_small_is_noticed_before_the_download(machine, mirror, data, monkeypatch):
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 5_000_000))
    with pytest.raises(SetupError, match=r"bringing the Vulkan driver needs \d+ MB .* has 5 MB free: free some space"):
        ensure_driver()
    assert_nothing_left(data)


def test_a_driver_that_does_not_work_here_is_not_kept(machine, mirror, data):
    machine.cached = []
    with pytest.raises(SetupError, match="the downloaded Vulkan driver does not work on this machine: install"):
        ensure_driver()
    assert_nothing_left(data)


def test_packages_without_the_driver_are_one_line(machine, mirror, data):
    (mirror / "mesa-vulkan-drivers_26.1.6-1_amd64.deb").unlink()
    package(mirror / "mesa-vulkan-drivers_27.0-1_amd64.deb", {"./usr/share/doc/x": ""})
    with pytest.raises(SetupError, match=r"the downloaded packages lack libvulkan_lvp\.so"):
        ensure_driver()
    assert_nothing_left(data)


def test_a_damaged_package_is_one_line(machine, mirror, data):
    (mirror / "libneeded1_1.0_amd64.deb").write_bytes(b"not a tar" * 100)
    with pytest.raises(SetupError, match=r"the package libneeded1_1\.0_amd64\.deb is damaged"):
        ensure_driver()
    assert_nothing_left(data)


def test_removing_the_driver(machine, mirror, data):
    assert not remove_driver()
    ensure_driver()
    assert remove_driver()
    assert_nothing_left(data)
    assert cached_driver.chosen() is None


@pytest.mark.parametrize("name", ["ZINCCHAT_DRIVER", "VK_DRIVER_FILES", "VK_ICD_FILENAMES"])
def test_a_user_who_names_a_driver_is_left_alone(machine, data, monkeypatch, name):
    monkeypatch.setenv(name, "system")
    ensure_driver()
    assert machine.asked == 0
    assert not data.exists()


def test_a_crash_while_asking_for_devices_is_no_device():
    assert vulkan_devices(["sh", "-c", "kill -SEGV $$"]) == []
    assert vulkan_devices(["no-such-program"]) == []


def test_noise_on_the_output_does_not_hide_the_devices(tmp_path):
    line = 'zincchat-vulkan: [{"name": "card", "is_software": false, "driver_version": [1, 2, 3]}]'
    script = tmp_path / "probe"
    script.write_text(f"#!/bin/sh\necho WARNING: not conformant\necho '{line}'\nexit 139\n")
    script.chmod(0o755)
    assert subprocess.run([script]).returncode == 139
    assert vulkan_devices([str(script)]) == [Device("card", False, (1, 2, 3))]
