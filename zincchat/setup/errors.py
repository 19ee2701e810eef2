"""How a step of the setup fails: an exit code and one line, which says what the system's own errors mean to a user."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from pathlib import Path

from zincchat.setup.console import say

FAILED, INTERRUPTED = 1, 130


class SetupError(Exception):
    """A step failed: one line that says what failed and what to do.

    ``detail`` is the raw output of the program behind it, shown under ``--debug`` only.
    """

    def __init__(self, message: str, detail: str = "") -> None:
        """Keep ``message`` as the line and ``detail`` for ``--debug``."""
        super().__init__(message)
        self.detail = detail


def file_error(
    error: OSError, folder: Path, doing: str, otherwise: str = "set ZINCCHAT_DATA to another folder"
) -> SetupError:
    """The line for an OSError met in ``folder`` while ``doing`` something; ``otherwise`` is how to do without it."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return disk_full(folder, doing)
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST):
        return SetupError(f"the folder {folder} cannot be written ({error.strerror}): make it writable, or {otherwise}")
    return SetupError(f"{doing} failed: {error.strerror or error}", str(error))


def disk_full(folder: Path, doing: str) -> SetupError:
    """The line for a disk without room."""
    return SetupError(f"the disk of {folder} is full ({doing}): free some space and try again")


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
