"""GGUF files: the header parsed and checked, the tensors read one at a time."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np

from engine.errors import EngineError
from engine.weights.gguf_header import HeaderParser, TensorInfo

__all__ = ["GGUFFile", "TensorInfo"]


class GGUFFile:
    """An open GGUF file. ``metadata`` values are int, float, bool, str, list[str] or numpy arrays."""

    def __init__(self, path: Path, file: BinaryIO, metadata: dict[str, Any], tensors: dict[str, TensorInfo]) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self._file = file

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Open the file and parse its header. Anything wrong with it is an EngineError naming the file."""
        path = Path(path)
        file = _open(path)
        try:
            with _map(path, file) as mapping:
                metadata, tensors = HeaderParser(path.name, mapping).parse()
        except BaseException:
            file.close()
            raise
        return cls(path, file, metadata, tensors)

    def data(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """The tensor's bytes, (size_bytes,) uint8.

        Read rather than mapped: a mapped file that is cut short meanwhile, or whose disk is taken away, kills the
        process.
        """
        info = self.tensors.get(name)
        if info is None:
            raise EngineError(f"{self.path.name}: it has no tensor {name!r}")
        if self._file.closed:
            raise EngineError(f"{self.path.name}: the file is closed")
        data = np.empty(info.size_bytes, np.uint8)
        try:
            self._file.seek(info.offset)
            count = self._file.readinto(data)  # type: ignore[attr-defined]
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if count != info.size_bytes:
            raise EngineError(f"{self.path.name}: the file was cut short while it was read: download it again")
        return data

    def close(self) -> None:
        """Close the file; arrays that ``data`` gave out stay."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(path: Path) -> BinaryIO:
    try:
        # Looked at before it is opened: opening a FIFO would wait for a writer.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise EngineError(f"{path.name or path}: this is a directory; give the .gguf file in it")
        if not stat.S_ISREG(mode):
            raise EngineError(f"{path.name}: this is not a regular file; give a .gguf file")
        return path.open("rb")
    except FileNotFoundError as error:
        raise EngineError(f"{path}: there is no such file") from error
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _map(path: Path, file: BinaryIO) -> mmap.mmap:
    try:
        if os.fstat(file.fileno()).st_size == 0:
            raise EngineError(f"{path.name}: the file is empty: download it again")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: OSError | ValueError) -> EngineError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return EngineError(f"{path}: the file cannot be read: {reason}")
