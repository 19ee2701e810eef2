"""How a step of the setup fails, and what the system's own errors mean to a user."""

from __future__ import annotations

import errno
from pathlib import Path


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
