"""A text file that appears whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.errors import EngineError


class AtomicFile:
    """Opened at once, so that a path that cannot be written fails before any work is done for it.

    Text goes to a file beside ``path``, which ``commit`` renames; without it nothing of ``path`` changes. Devices and
    pipes are written directly. Every failure is an EngineError of one line.
    """

    def __init__(self, path: str | Path) -> None:
        """Open for writing; EngineError where that is not possible."""
        self._shown = Path(path)
        try:
            if self._shown.is_dir():
                raise IsADirectoryError(0, "it is a folder; give a file name")
            direct = self._shown.is_relative_to("/dev") or (self._shown.exists() and not self._shown.is_file())
            self._target = self._shown if direct else self._shown.resolve()
            if self._target.exists() and not os.access(self._target, os.W_OK):
                raise PermissionError(0, "permission denied")
            self._partial = None if direct else self._target.with_name(f".zincchat-{os.getpid()}.partial")
            self._file = (self._partial or self._target).open("w", encoding="utf-8", newline="")
        except (OSError, ValueError) as error:  # ValueError: a NUL byte in the path
            raise self._failure(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, text: str) -> None:
        """Append text; EngineError where the disk is full."""
        try:
            self._file.write(text)
        except (OSError, ValueError) as error:
            raise self._failure(error) from error

    def commit(self) -> None:
        """Put what was written in the place of ``path``."""
        try:
            self._file.close()
            if self._partial is not None:
                self._partial.replace(self._target)
                self._partial = None
        except OSError as error:
            raise self._failure(error) from error

    def close(self) -> None:
        """Drop what was not committed."""
        with suppress(OSError):  # what was not committed may not fit the disk
            self._file.close()
        if self._partial is not None:
            self._partial.unlink(missing_ok=True)
            self._partial = None

    def _failure(self, error: OSError | ValueError) -> EngineError:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return EngineError(f"cannot write {self._shown}: {reason}")
