"""Running another program quietly: its output is kept for ``--debug``, and it never outlives an interrupt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class Finished:
    """How a program ended: its exit status, standard output and standard error as text."""

    status: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """Both streams, standard output first."""
        return self.stdout + self.stderr


def run(
    command: Sequence[str | Path],
    *,
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
    watch: Callable[[], None] | None = None,
    timeout_s: float | None = None,
) -> Finished:
    """Run ``command`` to its end, calling ``watch`` ten times a second.

    It gets a session of its own, so that Ctrl-C reaches only this process, which then ends the program and all it
    started. Raises OSError where it cannot be started and TimeoutError past ``timeout_s``.
    """
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            env=environment,
            cwd=folder,
            start_new_session=True,
        )
        waited_s = 0.0
        try:
            while True:
                try:
                    process.wait(_POLL_S)
                    break
                except subprocess.TimeoutExpired:
                    waited_s += _POLL_S
                    if watch is not None:
                        watch()
                    if timeout_s is not None and waited_s >= timeout_s:
                        raise TimeoutError(f"{command[0]} took longer than {timeout_s:.0f} s") from None
        finally:
            if process.poll() is None:
                _end(process)
        texts = []
        for stream in (out, err):
            stream.seek(0)
            texts.append(stream.read().decode(errors="replace"))
        return Finished(process.returncode, texts[0], texts[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    for signal_ in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal_)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
            return
