"""The command line: ``main`` reads the arguments, runs one command and returns its exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``zincchat ARGV`` (default: the process's arguments) and return the exit code.

    0 is success, 1 a failure, 2 a wrong command line, 130 an interrupt, 141 a closed output, 143 SIGTERM.
    """
    from zincchat.cli.errors import Invocation, run_guarded
    from zincchat.cli.group import zincchat
    from zincchat.cli.interruption import interrupts_remembered
    from zincchat.cli.termination import on_termination

    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller, as in `zincchat ... 2>&-`
            setattr(sys, name, Path(os.devnull).open("r" if name == "stdin" else "w"))  # noqa: SIM115
    arguments = list(sys.argv[1:] if argv is None else argv)
    invocation = Invocation(arguments)

    def invoke() -> int:
        context = zincchat.make_context("zincchat", list(arguments), obj=invocation)
        with context:
            zincchat.invoke(context)
        return 0

    with on_termination(), interrupts_remembered(invocation):
        return run_guarded(invoke, invocation)
