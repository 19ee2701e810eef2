"""Ctrl-C is remembered: some modules, numpy among them, turn one that comes while they load into an ImportError."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from zincchat.cli.errors import Invocation


class _Remembering:
    """A handler that notes the signal in ``invocation`` and raises KeyboardInterrupt, as Python's own does."""

    def __init__(self, invocation: Invocation) -> None:
        self._invocation = invocation

    def __call__(self, signum: int, frame: Any) -> None:
        self._invocation.interrupted = True
        raise KeyboardInterrupt


@contextmanager
def interrupts_remembered(invocation: Invocation) -> Iterator[None]:
    """Note each Ctrl-C in ``invocation.interrupted``; one that is ignored, or that another handles, stays so."""
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, _Remembering(invocation))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def forget_interrupts() -> None:
    """Give Ctrl-C back to Python: asyncio takes it for its own only where nobody else has."""
    if isinstance(signal.getsignal(signal.SIGINT), _Remembering):
        signal.signal(signal.SIGINT, signal.default_int_handler)
