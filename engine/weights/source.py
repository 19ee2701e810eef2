"""Where a model's metadata and tensors come from, whatever the format on disk."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

import numpy as np

from engine.weights.gguf_header import TensorInfo

Bytes = np.ndarray[tuple[int], np.dtype[np.uint8]]


class ModelSource(Protocol):
    """An open model, named as GGUF names things; ``engine.weights.open_model`` opens one.

    ``path`` is what the user gave, ``folder`` the same where it is a Hugging Face folder, else None. ``tensors`` is
    keyed by GGUF's names; an info's own ``name`` is what its file calls it. ``file_bytes`` is the size on disk.
    """

    @property
    def path(self) -> Path: ...

    @property
    def folder(self) -> Path | None: ...

    @property
    def name(self) -> str:
        """What people call the model."""

    @property
    def metadata(self) -> Mapping[str, Any]: ...

    @property
    def tensors(self) -> Mapping[str, TensorInfo]: ...

    @property
    def file_bytes(self) -> int: ...

    def rows(self, name: str, first: int, count: int) -> Bytes:
        """The bytes of ``count`` of a tensor's rows, from ``first`` on, as GGUF holds them: flat uint8.

        Any thread may call it. EngineError where they cannot be read.
        """

    def data(self, name: str) -> Bytes:
        """A tensor's bytes, all of its rows'."""

    def close(self) -> None:
        """Close the files; arrays that ``data`` gave out stay."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
