"""Fetching a model through pip: what arrives, and what each failure says and leaves behind."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from zincchat.catalogue import CatalogueModel
from zincchat.setup import folders
from zincchat.setup.errors import SetupError
from zincchat.setup.model import fetch_model, is_intact

CONTENT = bytes(range(256)) * 2000

# Stands in for pip: notes its arguments, then does what its first argument says.
FAKE_PIP = """
import shutil, sys, time
from pathlib import Path
behaviour, wheel, *arguments = sys.argv[1:]
with open(Path(wheel).with_name("calls"), "a") as calls:
    print(*arguments, file=calls)
destination = Path(arguments[arguments.index("--dest") + 1])
if behaviour == "deliver":
    shutil.copy(wheel, destination)
elif behaviour == "hang":
    (destination / "growing").write_bytes(bytes(1000))
    print("started", file=sys.stderr)
    time.sleep(600)
else:
    sys.exit(behaviour)
"""


@pytest.fixture
def model(tmp_path: Path, data: Path) -> CatalogueModel:
    """A small catalogue model; its package lies at ``tmp_path / "tiny.whl"``."""
    with zipfile.ZipFile(tmp_path / "tiny.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.writestr("tiny/tiny.gguf", CONTENT)
        wheel.writestr("tiny/__init__.py", "")
    return CatalogueModel(
        name="tiny",
        description="a tiny model",
        licence="MIT",
        requirement="tiny==1.0",
        member="tiny/tiny.gguf",
        download_bytes=(tmp_path / "tiny.whl").stat().st_size,
        file_name="tiny.gguf",
        file_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


def fake_pip(tmp_path: Path, behaviour: str = "deliver") -> list[str]:
    script = tmp_path / "fake_pip.py"
    script.write_text(FAKE_PIP)
    return [sys.executable, str(script), behaviour, str(tmp_path / "tiny.whl")]


def assert_nothing_left(data: Path) -> None:
    left = [path.name for path in data.rglob("*") if path.is_file() and path.name != ".setup.lock"]
    assert left == []
    assert list(data.glob(".partial-*")) == []


def test_the_file_arrives_and_nothing_else(model, data, tmp_path):
    path = fetch_model(model, fake_pip(tmp_path))
    assert path == data / "models" / "tiny.gguf"
    assert path.read_bytes() == CONTENT
    assert model.is_present
    path.unlink()
    assert_nothing_left(data)


def test_the_package_is_downloaded_alone_and_never_installed(model, tmp_path):
    fetch_model(model, fake_pip(tmp_path))
    (call,) = (tmp_path / "calls").read_text().splitlines()
    words = call.split()
    assert words[0] == "download"
    assert {"--no-deps", "--no-cache-dir", "--only-binary=:all:", "tiny==1.0"} <= set(words)


def test_a_second_call_downloads_nothing(model, tmp_path):
    fetch_model(model, fake_pip(tmp_path))
    fetch_model(model, fake_pip(tmp_path, "must not run"))
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_a_changed_file_is_noticed(model, tmp_path):
    fetch_model(model, fake_pip(tmp_path))
    assert is_intact(model)
    model.path.write_bytes(CONTENT[:-1] + b"!")
    assert not is_intact(model)


def test_a_short_file_is_fetched_again(model, data, tmp_path):
    (data / "models").mkdir(parents=True)
    model.path.write_bytes(CONTENT[:-1])
    fetch_model(model, fake_pip(tmp_path))
    assert model.path.read_bytes() == CONTENT


def test_a_wrong_checksum_deletes_the_download(model, data, tmp_path):
    with pytest.raises(SetupError, match=r"tiny does not match its checksum and was deleted: try again"):
        fetch_model(replace(model, sha256="0" * 64), fake_pip(tmp_path))
    assert_nothing_left(data)


def test_a_damaged_package_is_deleted(model, data, tmp_path):
    wheel = tmp_path / "tiny.whl"
    wheel.write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(SetupError, match="damaged and was deleted: try again"):
        fetch_model(model, fake_pip(tmp_path))
    assert_nothing_left(data)


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (
            "Retrying after 'NewConnectionError(: name resolution)'\nERROR: Could not find a version of tiny==1.0",
            "the package index cannot be reached: check the network connection",
        ),
        ("ERROR: No matching distribution found for tiny==1.0", "the package index does not have it"),
        ("ERROR: [Errno 28] No space left on device", "the disk is full: free some space"),
        ("/usr/bin/python3: No module named pip", "this Python has no pip"),
        ("something unheard of", "pip says why under --debug"),
    ],
)
def test_a_failing_pip_is_one_line_with_the_output_kept_for_debug(model, data, tmp_path, output, line):
    with pytest.raises(SetupError) as caught:
        fetch_model(model, fake_pip(tmp_path, output))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert output in caught.value.detail
    assert_nothing_left(data)


def test_too_little_space_is_noticed_before_the_download(model, data, tmp_path, monkeypatch):
    monkeypatch.setattr(folders.shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 5_000_000))
    with pytest.raises(SetupError, match=r"needs 1[67] MB on the disk of .* has 5 MB free: free some space"):
        fetch_model(model, fake_pip(tmp_path))
    assert not (tmp_path / "calls").exists()
    assert_nothing_left(data)


def test_a_disk_that_fills_while_writing(model, data, tmp_path, monkeypatch):
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SetupError, match=r"the disk of .* is full \(fetching the model tiny\): free some space"):
        fetch_model(model, fake_pip(tmp_path))
    assert_nothing_left(data)


def test_a_data_folder_that_cannot_be_written(model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZINCCHAT_DATA", str(tmp_path / "file" / "data"))
    with pytest.raises(SetupError, match=r"the folder .*/file/data cannot be written .* set ZINCCHAT_DATA"):
        fetch_model(model, fake_pip(tmp_path))


def test_what_a_killed_run_left_is_cleared_away(model, data, tmp_path):
    (data / ".partial-dead").mkdir(parents=True)
    (data / ".partial-dead" / "tiny.whl").write_bytes(bytes(1000))
    fetch_model(model, fake_pip(tmp_path))
    assert not (data / ".partial-dead").exists()


def running_commands() -> list[bytes]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found.append(path.read_bytes())
    return found


def test_an_interrupt_ends_pip_and_leaves_nothing(model, data, tmp_path):
    script = (
        "import sys\nfrom zincchat.catalogue import CatalogueModel\nfrom zincchat.setup.model import fetch_model\n"
        "from zincchat.setup.errors import reported\n"
        f"sys.exit(reported(lambda: fetch_model({model!r}, {fake_pip(tmp_path, 'hang')!r}), debug=False))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 100
    while not list(data.glob(".partial-*/download/growing")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "zincchat: interrupted; run it again to go on"
    assert "Traceback" not in errors
    assert_nothing_left(data)
    assert not any(str(tmp_path / "fake_pip.py").encode() in command for command in running_commands())


def test_the_command_says_one_line_and_fails(tmp_path):
    (tmp_path / "file").write_text("")
    environment = os.environ | {"ZINCCHAT_DATA": str(tmp_path / "file")}
    done = subprocess.run([sys.executable, "-m", "zincchat.setup"], env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith("zincchat: the folder ")
