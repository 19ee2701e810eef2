"""SIGTERM and SIGHUP end a command as Ctrl-C does: files are whole or gone, the terminal is as it was."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def on_termination(end: Callable[[int], object] = sys.exit) -> Iterator[None]:
    """Call ``end`` with the exit code shells give such a process; a signal that was ignored, by nohup, stays so."""

    def handle(signum: int, frame: Any) -> None:
        end(128 + signum)

    previous = {}
    if threading.current_thread() is threading.main_thread():
        previous = {number: signal.getsignal(number) for number in _SIGNALS}
        previous = {number: handler for number, handler in previous.items() if handler != signal.SIG_IGN}
    for number in previous:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
