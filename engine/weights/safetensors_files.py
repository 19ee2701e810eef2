"""The safetensors files of a folder: headers checked by the safetensors library, tensors read by rows.

Its numpy interface has no BF16, and it maps the file (see engine.weights.read_file). So it checks the header and tells
names, types, shapes and order; the bytes are read here, at the places that follow.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError, safe_open

from engine.errors import EngineError
from engine.text.json_file import read_json_object
from engine.weights.read_file import read_into

ITEM_BYTES = {"F32": 4, "F16": 2, "BF16": 2}
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
_BITS = {"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "C64": 64}
_AGAIN = "download it again"


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as its file has it. ``dtype`` is safetensors' name of the type, ``offset`` bytes into ``file``."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    path: Path
    file: BinaryIO

    @property
    def rows(self) -> int:
        """The first dimension; 1 for a scalar."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """Bytes of one row; only of the types in ITEM_BYTES."""
        return math.prod(self.shape[1:]) * ITEM_BYTES[self.dtype]


class SafetensorsFiles:
    """All safetensors of a folder, open. ``tensors`` is by name; ``size_bytes`` that of all files."""

    def __init__(self, folder: Path, name: str) -> None:
        """``name`` is what messages call the model. Anything wrong with the files is an EngineError naming one."""
        self._name = name
        self._files: list[BinaryIO] = []
        self.tensors: dict[str, StoredTensor] = {}
        self.size_bytes = 0
        try:
            index = None if (folder / SINGLE).exists() else _read_index(folder, name)
            for path in [folder / SINGLE] if index is None else [folder / file for file in sorted(set(index.values()))]:
                self._add(path)
            if index is not None:
                self._compare(index)
        except BaseException:
            self.close()
            raise

    def read(self, tensor: StoredTensor, first: int, count: int) -> npt.NDArray[np.uint8]:
        """The bytes of ``count`` rows from row ``first`` on, (count, row_bytes) uint8. Any thread may call it."""
        rows = np.empty((count, tensor.row_bytes), np.uint8)
        self.read_into(tensor, first, rows)
        return rows

    def read_into(self, tensor: StoredTensor, first: int, rows: npt.NDArray[np.uint8]) -> None:
        """As ``read``, into a contiguous array."""
        try:
            whole = read_into(tensor.file, tensor.offset + first * tensor.row_bytes, rows)
        except (OSError, ValueError) as error:
            if tensor.file.closed:
                raise EngineError(f"{self._name}: the model's files are closed") from error
            raise EngineError(f"{tensor.path}: the file cannot be read: {error}") from error
        if not whole:
            raise EngineError(f"{self._name}: {tensor.path.name} was cut short while it was read: {_AGAIN}")

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            file.close()

    def _add(self, path: Path) -> None:
        try:
            file = path.open("rb")
            self._files.append(file)
            self.size_bytes += os.fstat(file.fileno()).st_size
            tensors = list(_tensors(path, file))
        except FileNotFoundError as error:
            raise EngineError(f"{self._name}: {path.name} is missing: download the model again") from error
        except OSError as error:
            raise EngineError(f"{path}: the file cannot be read: {error.strerror or error}") from error
        except SafetensorError as error:
            reason = str(error).removeprefix("Error while deserializing header: ")
            raise EngineError(f"{self._name}: {path.name} is damaged or cut short ({reason}): {_AGAIN}") from error
        for tensor in tensors:
            if tensor.name in self.tensors:
                other = self.tensors[tensor.name].path.name
                raise EngineError(f"{self._name}: tensor {tensor.name} is in {other} and in {path.name}: {_AGAIN}")
            self.tensors[tensor.name] = tensor

    def _compare(self, index: Mapping[str, str]) -> None:
        for name, file in index.items():
            found = self.tensors.get(name)
            if found is None or found.path.name != file:
                where = "which lacks it" if found is None else f"but it is in {found.path.name}"
                raise EngineError(
                    f"{self._name}: {INDEX} has tensor {name} in {file}, {where}: download the model again"
                )
        for name, tensor in self.tensors.items():
            if name not in index:
                raise EngineError(
                    f"{self._name}: {tensor.path.name} has tensor {name}, which {INDEX} does not list: "
                    "download the model again"
                )


def _read_index(folder: Path, name: str) -> dict[str, str]:
    """File by tensor. EngineError where there is no index or it is no such thing."""
    try:
        values = read_json_object(folder / INDEX)
    except EngineError as error:
        raise EngineError(f"{name}: {error}") from error
    if values is None:
        others = [path.name for path in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pth"))]
        instead = f"; it has {others[0]}, a PyTorch file, which is not read" if others else ""
        raise EngineError(f"{name}: this folder has no {SINGLE} or {INDEX}{instead}")
    index = values.get("weight_map")
    if not isinstance(index, dict) or not index:
        raise EngineError(f"{name}: {INDEX} has no weight_map of tensors: {_AGAIN}")
    for tensor, file in index.items():
        if not isinstance(file, str) or Path(file).name != file or file in ("", "..") or not file.isprintable():
            raise EngineError(
                f"{name}: {INDEX} has tensor {tensor} in {str(file)[:60]!r}, which is no file's name: {_AGAIN}"
            )
    return index


def _tensors(path: Path, file: BinaryIO) -> Iterator[StoredTensor]:
    """What the file holds. The library has checked that the tensors fill it without gaps."""
    with safe_open(path, framework="np") as checked:
        names = checked.offset_keys()
        described = [checked.get_slice(name) for name in names]
        offset = 8 + int.from_bytes(file.read(8), "little")  # the length of the header, then the header
        for name, item in zip(names, described, strict=True):
            dtype, shape = item.get_dtype(), tuple(item.get_shape())
            yield StoredTensor(name, dtype, shape, offset, path, file)
            offset += math.prod(shape) * _bits(dtype) // 8


def _bits(dtype: str) -> int:
    """Bits of an element: mostly the number in the type's name (F8_E4M3, I64)."""
    with suppress(KeyError):
        return _BITS[dtype]
    return int("".join(filter(str.isdigit, dtype.split("_")[0])))
