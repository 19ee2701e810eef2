"""Bare ``zincchat``: check the options, then open the chat."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zincchat.cli import options
from zincchat.cli.errors import Failure
from zincchat.cli.interruption import forget_interrupts
from zincchat.cli.loading import device_argument
from zincchat.cli.resolve import resolve_model
from zincchat.cli.termination import on_termination

if TYPE_CHECKING:
    from engine import Engine

PROMPT_HISTORY = "prompt_history.jsonl"


def has_terminal() -> bool:
    """Whether keys can be read and a screen drawn; Textual draws on stderr."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def open_chat(values: dict[str, Any]) -> int:
    """Run the chat until it is left and return its exit code; raises Failure without a terminal to draw on.

    The app loads the model itself, so that its progress and its failure show on the screen.
    """
    if not has_terminal():
        raise Failure("the chat needs a terminal; for one reply use 'zincchat run PROMPT'")
    overrides = options.sampling_overrides(values)
    path = resolve_model(values["model"])

    from zincchat.app import ChatApp
    from zincchat.options import ChatOptions
    from zincchat.paths import data_dir

    app = ChatApp(
        engine_opener(path, options.engine_settings(values), overrides),
        ChatOptions(
            system=values["system"] or "",
            seed=overrides.get("seed"),
            thinking=values["think"],
            history_path=data_dir() / PROMPT_HISTORY,
        ),
    )
    forget_interrupts()
    with on_termination(lambda code: app.exit(return_code=code)):
        app.run()
    return app.return_code or 0


def engine_opener(path: Path, settings: dict[str, Any], overrides: dict[str, Any]) -> Callable[..., Engine]:
    """What the app calls as ``open_engine(progress=...)`` in its engine thread.

    ``overrides`` are the user's sampling values; they replace the model's own in ``engine.sampling``.
    """

    def open_engine(progress: Callable[[str, int, int], None] | None = None) -> Engine:
        from engine import Engine

        device = device_argument(settings.get("device"))
        engine = Engine.open(path, progress=progress, takes="messages", **{**settings, "device": device})
        engine.sampling = options.with_overrides(engine.sampling, overrides)
        return engine

    return open_engine
