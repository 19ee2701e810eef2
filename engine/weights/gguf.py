"""GGUF files: the header parsed, the tensors read in place through a memory map."""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from engine.errors import EngineError
from engine.weights.gguf_header import HeaderParser, TensorInfo

__all__ = ["GGUFFile", "TensorInfo"]


class GGUFFile:
    """An open GGUF file. ``metadata`` values are int, float, bool, str, list[str] or numpy arrays."""

    def __init__(
        self, path: Path, mapping: mmap.mmap, metadata: dict[str, Any], tensors: dict[str, TensorInfo]
    ) -> None:
        self.path = path
        self.metadata = metadata
        self.tensors = tensors
        self._mapping: mmap.mmap | None = mapping

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> GGUFFile:
        """Map the file and parse its header. Anything wrong with it is an EngineError naming the file."""
        path = Path(path)
        mapping = _map(path)
        try:
            metadata, tensors = HeaderParser(path.name, mapping).parse()
        except BaseException:
            mapping.close()
            raise
        return cls(path, mapping, metadata, tensors)

    def data(self, name: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        """The tensor's bytes, (size_bytes,) uint8: a read-only view of the file, not a copy."""
        info = self.tensors.get(name)
        if info is None:
            raise EngineError(f"{self.path.name}: it has no tensor {name!r}")
        if self._mapping is None:
            raise EngineError(f"{self.path.name}: the file is closed")
        return np.frombuffer(self._mapping, np.uint8, info.size_bytes, info.offset)

    def release(self) -> None:
        """Give back the memory of the pages read so far; reading them again fetches them from the file."""
        if self._mapping is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Unmap the file; views that ``data`` gave out keep it mapped until the last of them is gone."""
        mapping, self._mapping = self._mapping, None
        if mapping is not None:
            with contextlib.suppress(BufferError):  # a view is still alive: the map goes with it
                mapping.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _map(path: Path) -> mmap.mmap:
    try:
        # Looked at before it is opened: opening a FIFO would wait for a writer.
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise EngineError(f"{path.name or path}: this is a directory; give the .gguf file in it")
        if not stat.S_ISREG(mode):
            raise EngineError(f"{path.name}: this is not a regular file; give a .gguf file")
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            if size_bytes == 0:
                raise EngineError(f"{path.name}: the file is empty: download it again")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError as error:
        raise EngineError(f"{path}: there is no such file") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise EngineError(f"{path}: the file cannot be read: {reason}") from error
