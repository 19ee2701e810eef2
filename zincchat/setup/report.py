"""How a step of the setup ends: an exit code, and at most one line on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable

from zincchat.setup.console import say
from zincchat.setup.errors import SetupError

FAILED, INTERRUPTED = 1, 130


def reported(step: Callable[[], None], *, debug: bool) -> int:
    """Run ``step`` and return the exit code; say in one line why it failed, the raw output above it under ``debug``."""
    try:
        step()
    except SetupError as error:
        if debug and error.detail:
            print(error.detail.rstrip(), file=sys.stderr)
        say(str(error))
        return FAILED
    except KeyboardInterrupt:
        say("interrupted; run it again to go on")
        return INTERRUPTED
    return 0
