"""Opening the engine for one command, and stopping it cleanly on Ctrl-C."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import Engine

_CLEAR_LINE = "\r\x1b[K"
_USUAL_COLUMNS = 80


def device_argument(device: str | None) -> int | str | None:
    """``--device`` as the engine takes it: an index where it is a number, else part of a name."""
    return int(device) if device is not None and device.isdecimal() else device


@contextmanager
def open_engine(path: Path, settings: dict[str, Any], takes: str = "ids") -> Iterator[Engine]:
    """The engine for ``path`` with the load's progress on stderr (a terminal only); closed at the end.

    ``takes``: see ``Engine.open``.
    """
    from engine import Engine

    settings = {**settings, "device": device_argument(settings.get("device"))}
    status = StatusLine()
    try:
        engine = Engine.open(
            path,
            progress=lambda stage, done, total: status.show(_load_text(stage, done, total)),
            takes=takes,
            **settings,
        )
    finally:
        status.clear()
    with engine:
        yield engine


def _columns() -> int:
    """How wide the terminal on stderr is; one whose size is unknown, or 0, as usual."""
    with suppress(OSError, ValueError):
        return os.get_terminal_size(sys.stderr.fileno()).columns or _USUAL_COLUMNS
    return _USUAL_COLUMNS


def _load_text(stage: str, done: int, total: int) -> str:
    if stage == "weights":
        return f"loading weights {done / 1e6:,.0f} of {total / 1e6:,.0f} MB"
    if stage == "tuning":
        return f"measuring kernels {done} of {total}"
    return f"loading {stage} {done} of {total}" if total else f"loading {stage}"


class StatusLine:
    """One line on stderr that is overwritten as work goes on; silent where stderr is no terminal."""

    def __init__(self) -> None:
        """Nothing is written before the first ``show``."""
        self._shown = ""
        self._on = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Replace the line's text."""
        if self._on and text != self._shown:
            sys.stderr.write(f"{_CLEAR_LINE}{text[: _columns() - 1]}")  # a line that wraps cannot be overwritten
            sys.stderr.flush()
            self._shown = text

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            sys.stderr.write(_CLEAR_LINE)
            sys.stderr.flush()
            self._shown = ""


@contextmanager
def interruptible() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets, so that the GPU finishes its token first; raises KeyboardInterrupt on leaving.

    A second Ctrl-C does not wait.
    """
    cancel = threading.Event()

    def on_interrupt(signum: int, frame: Any) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    previous = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield cancel
    except Exception:
        if cancel.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGINT, previous)
    if cancel.is_set():
        raise KeyboardInterrupt
