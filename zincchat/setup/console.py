"""What the setup tells its user: plain lines and a progress bar, all on stderr."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def say(line: str) -> None:
    """One line for the user."""
    print(f"zincchat: {line}", file=sys.stderr, flush=True)


def megabytes(size_bytes: int) -> str:
    """A size as people write it, in units of 10**6 bytes."""
    return f"{size_bytes / 1e6:,.0f} MB"


@contextmanager
def progress(label: str, total_bytes: int) -> Iterator[Callable[[int], None]]:
    """A bar towards ``total_bytes`` on a terminal, else a line each quarter; it yields what takes the bytes so far."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        with Progress(*columns, console=Console(stderr=True)) as bar:
            task = bar.add_task(label, total=total_bytes)
            yield lambda done_bytes: bar.update(task, completed=min(done_bytes, total_bytes))
        return
    quarters_told = 0

    def tell(done_bytes: int) -> None:
        nonlocal quarters_told
        quarters = min(4, 4 * done_bytes // total_bytes)
        if quarters > quarters_told:
            quarters_told = quarters
            say(f"{label}: {megabytes(min(done_bytes, total_bytes))} of {megabytes(total_bytes)}")

    yield tell
