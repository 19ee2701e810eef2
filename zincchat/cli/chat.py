"""Bare ``zincchat``: check the options, then open the chat."""

from __future__ import annotations

import sys
from typing import Any

from zincchat.cli import options
from zincchat.cli.errors import Failure
from zincchat.cli.resolve import resolve_model


def open_chat(values: dict[str, Any]) -> None:
    """Open the chat with the options given; raises Failure where there is no terminal to draw on."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Failure("the chat needs a terminal; for one reply use 'zincchat run PROMPT'")
    options.sampling_overrides(values)
    resolve_model(values["model"])

    from zincchat.app import ChatApp
