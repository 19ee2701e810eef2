"""What only a process of its own shows: a closed pipe, Ctrl-C and the time to start."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[3]

# A process whose engine is the fake one. With ENDLESS its reply does not end before it is interrupted.
PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup has these tests' children ignore
import pytest
from tests.zincchat.cli import fake_engine
from zincchat.cli import main

fake_engine.install(pytest.MonkeyPatch())
if {endless}:
    generate = fake_engine.FakeSession.generate
    def slowly(self, *arguments, **settings):
        for token in generate(self, *arguments, **settings):
            time.sleep(0.01)
            yield token
    fake_engine.FakeSession.generate = slowly
sys.exit(main(sys.argv[1:]))
"""


def command(*arguments: str, endless: bool = False) -> list[str]:
    """``zincchat ARGUMENTS`` with the fake engine; run it in the repository's root."""
    return [sys.executable, "-c", PROGRAM.format(endless=endless), *arguments]


def start(model: Path, *arguments: str, endless: bool = False) -> subprocess.Popen[bytes]:
    """That command on ``model``, running, with pipes."""
    return subprocess.Popen(
        command(*arguments, "--model", str(model), endless=endless),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=REPOSITORY,
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "Hi", "--max-tokens", "100000", "--ignore-eos"],
        ["run", "Hi", "--max-tokens", "2000", "--ignore-eos", "--json"],
    ],
)
def test_a_closed_pipe_ends_quietly(default_model: Path, arguments: list[str]) -> None:
    process = start(default_model, *arguments)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.read(1)
    process.stdout.close()
    assert process.stderr.read() == b""
    assert process.wait(200) == 141
    process.stderr.close()


@pytest.mark.parametrize("arguments", [["run", "Hi"], ["run", "Hi", "--json"], ["models", "list"]])
def test_a_full_disk_behind_the_output_is_one_line(default_model: Path, arguments: list[str]) -> None:
    if arguments[0] == "run":
        arguments = [*arguments, "--model", str(default_model)]
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(command(*arguments), stdout=full, stderr=subprocess.PIPE, cwd=REPOSITORY, timeout=200)
    assert (done.returncode, done.stderr) == (1, b"zincchat: the output: No space left on device\n")


def test_closed_standard_streams_are_no_error(default_model: Path) -> None:
    line = shlex.join(command("run", "Hi", "--model", str(default_model)))
    done = subprocess.run(["sh", "-c", f"{line} 2>&- <&-"], stdout=subprocess.PIPE, cwd=REPOSITORY, timeout=200)
    assert (done.returncode, done.stdout) == (0, b"Hello world!\n")


def test_ctrl_c_stops_with_one_line_and_keeps_the_text(default_model: Path) -> None:
    process = start(default_model, "run", "Hi", "--max-tokens", "1000000", "--ignore-eos", endless=True)
    assert process.stdout is not None
    first = process.stdout.read(5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert first == b"Hello"
    assert out.endswith(b"\n")
    assert err == b"zincchat: interrupted\n"
    assert process.returncode == 130


@pytest.mark.parametrize("prompt", ["café 日本", "-"])
def test_utf8_is_understood_in_a_locale_that_has_no_such_letters(prompt: str) -> None:
    ascii_only = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    program = "import sys; from zincchat.cli.messages import read_prompt; print(ascii(read_prompt(sys.argv[1])))"
    done = subprocess.run(
        [sys.executable, "-c", program, prompt],
        input="café 日本".encode(),
        capture_output=True,
        cwd=REPOSITORY,
        env=ascii_only,
        timeout=200,
    )
    assert done.stdout.decode() == ascii("café 日本") + "\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_terminated_command_leaves_no_half_file(
    default_model: Path, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    arguments = ("run", "Hi", "--max-tokens", "1000000", "--ignore-eos", "--export", str(tmp_path / "out.csv"))
    process = start(default_model, *arguments, endless=True)
    assert process.stdout is not None
    assert process.stdout.read(5) == b"Hello"
    process.send_signal(number)
    assert process.communicate(timeout=200)[1] == b""
    assert process.returncode == code
    assert [path for path in tmp_path.iterdir() if "partial" in path.name or path.suffix == ".csv"] == []


def test_starting_loads_neither_the_engine_nor_the_app(default_model: Path) -> None:
    program = (
        "import sys; from zincchat.cli import main; main(['models', 'path', 'smollm2-135m']); "
        "print([name for name in ('numpy', 'vulkan', 'textual', 'psutil', 'httpx2') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=REPOSITORY, timeout=200
    )
    assert done.stdout.splitlines()[-1] == "[]"
