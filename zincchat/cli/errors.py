"""How a command ends: one line on stderr, an exit code, and the raw cause under ``--debug`` only."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import click

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
FAILURE, USAGE, INTERRUPTED, CLOSED_OUTPUT = 1, 2, 130, 141


class Failure(click.ClickException):
    """A command could not do its work; the message is one line that says what to do."""

    exit_code = FAILURE


@dataclass
class Invocation:
    """What is known of this call everywhere: click hands it to each command as ``ctx.obj``."""

    argv: list[str] = field(default_factory=list)
    debug: bool = False
    interrupted: bool = False  # by Ctrl-C, whatever became of its KeyboardInterrupt

    @property
    def command(self) -> str:
        """The command line, quoted so that a shell can run it again."""
        return shlex.join(["zincchat", *self.argv])


def run_guarded(body: Callable[[], int], invocation: Invocation) -> int:
    """Run ``body`` and turn whatever ends it into an exit code and at most one line on stderr."""
    try:
        code = body()
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence_output()
        return CLOSED_OUTPUT
    except (KeyboardInterrupt, click.Abort):
        return _report("interrupted", INTERRUPTED)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return USAGE
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx is not None else "zincchat"
        said = f"{error.format_message().rstrip('.')}{_switch_hint(error, invocation.argv)}"
        return _report(f"{said} (see '{where} --help')", USAGE, error, invocation.debug)
    except click.ClickException as error:
        return _report(error.format_message(), error.exit_code, error, invocation.debug)
    except Exception as error:  # the last line of defence: a traceback is for --debug
        if invocation.interrupted:
            return _report("interrupted", INTERRUPTED, error, invocation.debug)
        return _report(describe(error), FAILURE, error, invocation.debug)


def _switch_hint(error: click.UsageError, argv: list[str]) -> str:
    """What to write where a value follows --fusion, which only ``bench`` takes one for."""
    refused = [word for word in ("on", "off") if f"({word}" in str(error) or f"'{word}'" in str(error)]
    if any((("--fusion", word) in pairwise(argv)) for word in refused):
        return "; it is --fusion or --no-fusion, without a value"
    return ""


def describe(error: Exception) -> str:
    """What to tell the user about ``error``: EngineError and SetupError speak for themselves, others are unexpected."""
    for module, name in (("engine", "EngineError"), ("zincchat.setup.errors", "SetupError")):
        kind = getattr(sys.modules.get(module), name, None)
        if isinstance(kind, type) and isinstance(error, kind):
            return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'the output'}: {error.strerror}"
    if isinstance(error, MemoryError):
        return "out of memory; try a smaller --context or a smaller model"
    return f"unexpected {type(error).__name__}: {error} (add --debug for the cause)"


def printable(text: str) -> str:
    """``text`` without what a terminal would obey, for one that may hold names out of a file."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def _report(message: str, code: int, error: Exception | None = None, debug: bool = False) -> int:
    """Write ``message`` as one line (the traceback first, under --debug) and hand back ``code``."""
    try:
        if debug and error is not None:
            traceback.print_exception(error, file=sys.stderr)
        click.echo(f"zincchat: {printable(' '.join(message.split()))}", err=True)
        sys.stdout.flush()
    except OSError:
        _silence_output()
    return code


def _silence_output() -> None:
    """Point the streams that take no more at the null device, so that Python's own flush at exit cannot complain."""
    null = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            try:
                stream.flush()
            except OSError:
                os.dup2(null, stream.fileno())
    os.close(null)
