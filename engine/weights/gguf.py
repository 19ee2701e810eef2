"""GGUF files, whole or in parts: the headers parsed and checked, the tensors read one at a time."""

from __future__ import annotations

import mmap
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np

from engine.errors import EngineError
from engine.weights.gguf_header import HeaderParser, TensorInfo
from engine.weights.gguf_split import Header, part_paths, require_one_model, whole_name
from engine.weights.read_file import read_into
from engine.weights.source import Bytes

__all__ = ["GGUFFile", "TensorInfo"]


class GGUFFile:
    """An open GGUF model. ``metadata`` values are int, float, bool, str, list[str] or numpy arrays.

    ``path`` is its file, of a model in parts the first; ``file_bytes`` the size of all of them. A ModelSource.
    """

    def __init__(self, parts: list[_Part]) -> None:
        """Not for callers: use ``GGUFFile.open``."""
        self.path = parts[0].path
        self.folder = None
        self.name = whole_name(self.path)  # what people call it; general.name is often a training run's
        self.metadata = parts[0].header[0]
        self.tensors = {name: info for part in parts for name, info in part.header[1].items()}
        self.file_bytes = sum(part.size_bytes for part in parts)
        self._parts = parts
        self._part_of = {name: part for part in parts for name in part.header[1]}

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Open the file, and the others where it is any part of a split model, and parse the headers.

        Anything wrong with them is an EngineError naming the file.
        """
        given = _Part(Path(path))
        opened = [given]
        try:
            paths = part_paths(given.path, given.header[0])
            opened.extend(_Part(item) for item in paths if item != given.path)
            parts = sorted(opened, key=lambda part: paths.index(part.path))
            if len(parts) > 1:
                require_one_model(paths, [part.header for part in parts])
        except BaseException:
            for part in opened:
                part.file.close()
            raise
        return cls(parts)

    def rows(self, name: str, first: int, count: int) -> Bytes:
        """The bytes of ``count`` of the tensor's rows, from ``first`` on, flat uint8. Any thread may call it."""
        info = self.tensors.get(name)
        if info is None:
            raise EngineError(f"{self.path.name}: it has no tensor {name!r}")
        part = self._part_of[name]
        row_bytes = info.size_bytes // info.shape[0]
        data = np.empty(count * row_bytes, np.uint8)
        try:
            whole = read_into(part.file, info.offset + first * row_bytes, data)
        except (OSError, ValueError) as error:
            if part.file.closed:
                raise EngineError(f"{part.path.name}: the file is closed") from error
            raise _unreadable(part.path, error) from error
        if not whole:
            raise EngineError(f"{part.path.name}: the file was cut short while it was read: download it again")
        return data

    def data(self, name: str) -> Bytes:
        """The tensor's bytes, (size_bytes,) uint8."""
        info = self.tensors.get(name)
        return self.rows(name, 0, info.shape[0] if info is not None else 0)

    def close(self) -> None:
        """Close the files; arrays that ``data`` gave out stay."""
        for part in self._parts:
            part.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Part:
    """One open file with its parsed header."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file = _open(path)
        try:
            with _map(path, self.file) as mapping:
                self.size_bytes = len(mapping)
                self.header: Header = HeaderParser(path.name, mapping).parse()
        except BaseException:
            self.file.close()
            raise


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
