"""The checkout's Python environment: finished or not there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from zincchat.setup import environment
from zincchat.setup.child import Finished
from zincchat.setup.errors import SetupError

CHECKOUT = Path(__file__).resolve().parents[3]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "requirements.lock").write_text("click==8\n")
    return tmp_path


@pytest.fixture
def pip(monkeypatch):
    """Let ``pip install`` succeed without doing anything, noting the calls; ``pip.fail`` is its output if it fails."""

    class Pip:
        calls: list[list[str]] = []  # noqa: RUF012 - one instance a test
        fail = ""
        interrupt = False

    real, fake = environment.child.run, Pip()
    fake.calls = []

    def run(command, **options):
        words = [str(word) for word in command]
        if "pip" not in words:
            return real([*command, "--without-pip"], **options)  # python -m venv, the quick way
        fake.calls.append(words)
        (Path(options["environment"]["TMPDIR"]) / "pip-unpack-x").mkdir(exist_ok=True)
        if fake.interrupt:
            raise KeyboardInterrupt
        return Finished(1 if fake.fail else 0, "", fake.fail)

    monkeypatch.setattr(environment.child, "run", run)
    return fake


def test_the_locked_dependencies_are_installed_by_hash_then_the_checkout(checkout, pip):
    environment.prepare(checkout)
    assert (checkout / ".venv" / "bin" / "python").exists()
    locked, own = pip.calls
    assert {"--require-hashes", "--no-deps", "requirements.lock"} <= set(locked)
    assert {"--editable", "--no-deps", "--no-build-isolation"} <= set(own)


def test_a_second_run_does_nothing_until_the_lock_changes(checkout, pip):
    environment.prepare(checkout)
    environment.prepare(checkout)
    assert len(pip.calls) == 2
    (checkout / "requirements.lock").write_text("click==9\n")
    environment.prepare(checkout)
    assert len(pip.calls) == 4


def test_a_failed_first_install_leaves_no_environment(checkout, pip):
    pip.fail = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE"
    with pytest.raises(
        SetupError, match=r"were not installed: a download does not match its hash in requirements\.lock"
    ):
        environment.prepare(checkout)
    assert not (checkout / ".venv").exists()


def test_a_failed_update_keeps_the_environment_and_is_tried_again(checkout, pip):
    environment.prepare(checkout)
    (checkout / "requirements.lock").write_text("click==9\n")
    pip.fail = "NameResolutionError"
    with pytest.raises(SetupError, match="cannot be reached: check the network"):
        environment.prepare(checkout)
    assert (checkout / ".venv" / "bin" / "python").exists()
    pip.fail = ""
    calls = len(pip.calls)
    environment.prepare(checkout)
    assert len(pip.calls) == calls + 2


def test_an_interrupted_update_leaves_no_temporary_files_of_pip(checkout, pip):
    environment.prepare(checkout)
    before = sorted(path.name for path in (checkout / ".venv").iterdir())
    (checkout / "requirements.lock").write_text("click==9\n")
    pip.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        environment.prepare(checkout)
    assert sorted(path.name for path in (checkout / ".venv").iterdir()) == before


def test_an_environment_whose_python_is_gone_is_made_anew(checkout, pip):
    environment.prepare(checkout)
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(checkout / "no-such-python")
    environment.prepare(checkout)
    assert subprocess.run([python, "-c", ""]).returncode == 0


def test_a_checkout_that_moved_gets_scripts_that_work(checkout, pip, tmp_path_factory):
    environment.prepare(checkout)
    (checkout / ".venv" / "bin" / "stale-script").write_text("#!" + str(checkout / ".venv" / "bin" / "python"))
    moved = tmp_path_factory.mktemp("moved") / "checkout"
    shutil.move(checkout, moved)
    environment.prepare(moved)
    assert not (moved / ".venv" / "bin" / "stale-script").exists()
    assert subprocess.run([moved / ".venv" / "bin" / "python", "-c", ""]).returncode == 0


def test_a_python_without_venv_names_the_package(checkout, pip, monkeypatch):
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    with pytest.raises(SetupError, match=rf"sudo apt-get install python{version}-venv"):
        environment.prepare(checkout)
    assert not (checkout / ".venv").exists()


def test_a_checkout_that_cannot_be_written_is_one_line(checkout, pip, monkeypatch):
    def refuse(path, text):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(environment, "write_atomically", refuse)
    with pytest.raises(
        SetupError, match=r"cannot be written \(Permission denied\): make it writable, or use a checkout"
    ):
        environment.prepare(checkout)
    assert not (checkout / ".venv").exists()


def test_something_else_named_venv_is_not_deleted(checkout, pip):
    (checkout / ".venv").write_text("mine")
    with pytest.raises(SetupError, match="is in the way: remove it"):
        environment.prepare(checkout)
    assert (checkout / ".venv").read_text() == "mine"


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_without_a_recent_python_says_one_line(tmp_path):
    for name in ("python3", "python3.11"):
        old = tmp_path / name
        old.write_text("#!/bin/sh\nexit 1\n")
        old.chmod(0o755)
    (tmp_path / "sh").symlink_to(shutil.which("sh"))
    done = subprocess.run(
        [shutil.which("make"), "setup"], cwd=CHECKOUT, env={"PATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if not line.startswith("make")]
    assert lines == ["zincchat: Python 3.11 or later is needed and was not found: install it and try again"]


def test_the_first_step_needs_nothing_but_the_standard_library():
    done = subprocess.run(
        [sys.executable, "-S", "-c", "import zincchat.setup.environment, sys; print(*sys.modules)"],
        cwd=CHECKOUT,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "platformdirs" not in done.stdout.split()
