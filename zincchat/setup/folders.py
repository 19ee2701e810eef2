"""Building something beside its place and moving it there in one step."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from zincchat.setup.console import megabytes
from zincchat.setup.errors import SetupError, file_error

_PREFIX = ".partial-"


@contextmanager
def staging(data: Path, doing: str) -> Iterator[Path]:
    """An empty folder inside the data folder, gone at the end however it comes; one setup at a time holds it.

    What earlier runs left there when they were killed goes too. An OSError on the way becomes a SetupError that says
    what was being done.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        with (data / ".setup.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left_over in data.glob(_PREFIX + "*"):
                shutil.rmtree(left_over, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=data))
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise file_error(error, data, doing) from error


def require_space(folder: Path, needed_bytes: int, doing: str) -> None:
    """Raise SetupError where the disk of ``folder`` has less than ``needed_bytes`` free."""
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise SetupError(
            f"{doing} needs {megabytes(needed_bytes)} on the disk of {folder}, which has {megabytes(free_bytes)} free: "
            "free some space, or set ZINCCHAT_DATA to a folder on another disk"
        )


def size_bytes(folder: Path) -> int:
    """Bytes in all the files below ``folder``; files that vanish meanwhile count nothing."""
    total = 0
    for parent, _folders, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(Path(parent, name)).st_size
            except FileNotFoundError:
                continue
    return total


def write_atomically(path: Path, text: str) -> None:
    """Replace ``path`` by a file with ``text``: readers see the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{_PREFIX}{path.name}")
    partial.write_text(text)
    partial.replace(path)
