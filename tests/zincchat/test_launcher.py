"""The launcher: the same Python environment under another dynamic loader, and nothing of it in child programs.

The cached driver of these tests is empty but for a copy of the machine's own dynamic loader.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from zincchat import cached_driver, launcher

SYSTEM_LOADER = Path("/lib64") / cached_driver.LOADER_NAME
needs_loader = pytest.mark.skipif(
    platform.machine() != "x86_64" or not SYSTEM_LOADER.exists(), reason="needs an x86-64 machine with glibc"
)

REPORT = """
import json, os, subprocess, sys
import zincchat
from zincchat.launcher import driver_environment
child = (
    "import json, os, sys; "
    "print(json.dumps([os.readlink('/proc/self/exe'), sys.prefix, [name for name in os.environ if name[:3] == 'VK_']]))"
)
print(json.dumps({
    "program": os.readlink("/proc/self/exe"),
    "executable": sys.executable,
    "prefix": sys.prefix,
    "arguments": sys.argv,
    "flags": sys.flags.utf8_mode,
    "package": zincchat.__file__,
    "driver": driver_environment(),
    "variables": [name for name in os.environ if name[:3] in ("VK_", "LD_")],
    "child": json.loads(subprocess.run([sys.executable, "-c", child], capture_output=True, text=True).stdout),
}))
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder in which the setup has brought a driver with a newer C library than any machine's."""
    folder = tmp_path / "data"
    driver = folder / "driver"
    for name in ("lib", "glibc", "icd", "layers"):
        (driver / name).mkdir(parents=True)
    if SYSTEM_LOADER.exists():
        shutil.copy(SYSTEM_LOADER, driver / "glibc" / cached_driver.LOADER_NAME)
    (driver / "manifest.json").write_text('{"glibc": "99.0"}')
    (folder / "driver.json").write_text('{"use": "cached"}')
    (tmp_path / "report.py").write_text(REPORT)
    return folder


def clean_environment(data: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name[:3] not in ("VK_", "LD_")}
    kept.pop("ZINCCHAT_DRIVER", None)
    return kept | {"ZINCCHAT_DATA": str(data)} | more


def launch(data: Path, *words: str, options: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-m", "zincchat.launcher", *words],
        env=clean_environment(data, **more),
        capture_output=True,
        text=True,
        timeout=200,
    )


def report(data: Path, *words: str, **more) -> dict:
    done = launch(data, "--exec", str(data.parent / "report.py"), *words, **more)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_loader
def test_the_cached_driver_is_started_with_the_same_environment_and_arguments(data):
    seen = report(data, "a", "b c", options=("-X", "utf8"))
    assert seen["program"] == str((data / "driver" / "glibc" / cached_driver.LOADER_NAME).resolve())
    assert seen["executable"] == sys.executable
    assert seen["prefix"] == sys.prefix
    assert seen["arguments"] == [str(data.parent / "report.py"), "a", "b c"]
    assert seen["flags"] == 1
    assert seen["package"] == sys.modules["zincchat"].__file__
    assert seen["driver"]["VK_DRIVER_FILES"] == str(data / "driver" / "icd" / "lvp.json")
    assert seen["driver"]["VK_ADD_LAYER_PATH"] == str(data / "driver" / "layers")


@needs_loader
def test_child_programs_run_on_the_machines_own_libraries_and_see_no_variable(data):
    seen = report(data)
    assert seen["variables"] == []
    program, prefix, variables = seen["child"]
    assert program == os.path.realpath(sys.executable)
    assert prefix == sys.prefix
    assert variables == []


@needs_loader
def test_a_machine_with_a_newer_c_library_keeps_its_own_loader(data):
    (data / "driver" / "manifest.json").write_text('{"glibc": "2.1"}')
    seen = report(data)
    assert seen["program"] == str(SYSTEM_LOADER.resolve())
    assert seen["driver"]["VK_DRIVER_FILES"] == str(data / "driver" / "icd" / "lvp.json")


@needs_loader
def test_a_library_path_of_the_user_still_counts(data, tmp_path):
    prefix = subprocess.run(
        [sys.executable, "-c", "from zincchat import cached_driver; print(*cached_driver.load().prefix())"],
        env=clean_environment(data, LD_LIBRARY_PATH=str(tmp_path / "mine")),
        capture_output=True,
        text=True,
    )
    assert prefix.stdout.strip().endswith(f"/driver/lib:{data}/driver/glibc:{tmp_path}/mine")


@pytest.mark.parametrize(
    "variables", [{"ZINCCHAT_DRIVER": "system"}, {"VK_DRIVER_FILES": "/mine.json"}, {"VK_ICD_FILENAMES": "/mine.json"}]
)
def test_a_user_who_names_a_driver_gets_the_machines_own(data, variables):
    seen = report(data, **variables)
    assert seen["program"] == os.path.realpath(sys.executable)
    assert seen["driver"] == {}


def test_where_the_setup_chose_the_machines_own_driver_nothing_is_relaunched(data):
    (data / "driver.json").write_text('{"use": "system"}')
    assert report(data)["program"] == os.path.realpath(sys.executable)


@pytest.mark.parametrize("damage", ["driver/manifest.json", f"driver/glibc/{cached_driver.LOADER_NAME}", "driver.json"])
def test_a_driver_that_is_not_whole_is_not_used(data, damage):
    (data / damage).unlink(missing_ok=True)
    assert report(data)["program"] == os.path.realpath(sys.executable)


def test_a_loader_that_cannot_be_started_is_one_line(data):
    loader = data / "driver" / "glibc" / cached_driver.LOADER_NAME
    loader.write_bytes(b"\0not a program")
    done = launch(data, "--exec", str(data.parent / "report.py"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("zincchat: the cached Vulkan driver cannot be started (")
    assert "ZINCCHAT_DRIVER=system" in line


@needs_loader
def test_a_module_runs_as_the_main_program_and_its_status_is_kept(data):
    done = launch(data, "--exec", "-m", "pytest", "--version")
    assert done.returncode == 0
    assert "pytest" in done.stdout + done.stderr
    assert launch(data, "--exec", "-m", "pytest", "no-such-file").returncode == 4


def test_exec_without_a_program_explains_itself(data):
    done = launch(data, "--exec", ZINCCHAT_DRIVER="system")
    assert done.returncode == 1
    assert done.stderr.startswith("usage: ")


def test_without_the_faked_cards_driver_one_line_says_how_to_bring_it(data):
    done = launch(data, "--rdna4", str(data.parent / "report.py"))
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.endswith("run 'python -m zincchat.setup --rdna4'")


@needs_loader
def test_the_command_itself_starts(data):
    done = launch(data, "--version")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("zincchat ")


@needs_loader
def test_a_closed_output_is_no_error(data):
    line = f"'{sys.executable}' -m zincchat.launcher --exec '{data.parent / 'report.py'}' >&-"
    done = subprocess.run(["sh", "-c", line], env=clean_environment(data), stderr=subprocess.PIPE, timeout=200)
    assert (done.returncode, done.stderr) == (0, b"")


@needs_loader
def test_the_launch_is_quick(data):
    """The relaunch is a small part of the three seconds that a second start may take."""
    script = data.parent / "empty.py"
    script.write_text("import time; print(time.process_time())")  # the time of both images; a busy machine adds nothing
    assert float(launch(data, "--exec", str(script)).stdout) < 2


def test_ctrl_c_before_the_command_line_is_read_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(launcher, "select_driver", lambda: signal.raise_signal(signal.SIGINT))
    assert launcher.main() == 130
    assert capsys.readouterr().err == "zincchat: interrupted\n"


def test_ctrl_c_while_the_launcher_is_imported_is_one_line():
    script = """
import signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "zincchat.cached_driver":
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
import zincchat.launcher
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[2], capture_output=True, text=True, timeout=200
    )
    assert (done.returncode, done.stderr) == (130, "zincchat: interrupted\n")
