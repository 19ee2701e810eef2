"""How loading reports itself."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # (stage, done, total)


def no_progress(stage: str, done: int, total: int) -> None:
    """Says nothing."""
