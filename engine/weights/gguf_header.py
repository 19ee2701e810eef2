"""The header of a GGUF file, parsed and checked in full.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
``gguf.GGUFReader`` takes seconds on a large vocabulary and trusts the counts it reads; this parser takes
tens of milliseconds, and no count or length is believed before it is compared with the file's size.
"""

from __future__ import annotations

import itertools
import math
import mmap
import struct
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.errors import EngineError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MAX_DIMENSIONS = 4
MAX_NESTED_ARRAYS = 4
DOWNLOAD_AGAIN = "the file is damaged or cut short: download it again"

_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS: dict[int, np.dtype[Any]] = {
    value_type: np.dtype(code)
    for value_type, code in (
        (0, "<u1"), (1, "<i1"), (2, "<u2"), (3, "<i2"), (4, "<u4"), (5, "<i4"), (6, "<f4"),
        (_BOOL, "<u1"), (10, "<u8"), (11, "<i8"), (12, "<f8"),
    )
}  # fmt: skip
_SMALLEST_BYTES = {_STRING: 8, _ARRAY: 12} | {value_type: dtype.itemsize for value_type, dtype in _NUMBERS.items()}
_SMALLEST_PAIR_BYTES = 8 + 4 + 1
_SMALLEST_TENSOR_BYTES = 8 + 4 + 8 + 4 + 8


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of the file. ``shape`` is row-major: (rows, columns), the reverse of GGML's order."""

    name: str
    shape: tuple[int, ...]
    type: GGMLQuantizationType
    offset: int  # bytes from the start of the file
    size_bytes: int


def _looks_like(head: bytes) -> str:
    """What a file that is not GGUF seems to be, in words."""
    text = head.lstrip().lower()
    known = (
        (head.startswith(b"PK\x03\x04"), "a zip archive (a wheel or a PyTorch checkpoint?)"),
        (head.startswith(b"\x1f\x8b"), "a gzip archive"),
        (head[8:9] == b"{" and head[:8].endswith(b"\0\0\0"), "a safetensors file"),
        (head[:4] in (b"lmgg", b"tjgg", b"fmgg", b"algg"), "a GGML file from before GGUF"),
        (text.startswith((b"<!doctype html", b"<html")), "an HTML page (a failed download?)"),
        (head.startswith(b"version https://git-lfs"), "a Git LFS pointer, not the file it stands for"),
        (text.startswith(b"{"), "a JSON file"),
        (not any(byte < 9 or 13 < byte < 32 for byte in head), "a text file"),
    )
    return next((words for matches, words in known if matches), "another kind of file")


class HeaderParser:
    """A cursor over the mapped header; every read is bounded by the file's size."""

    def __init__(self, file_name: str, buffer: mmap.mmap) -> None:
        self._file_name = file_name
        self._buffer = buffer
        self._end = len(buffer)
        self._position = 0

    def parse(self) -> tuple[dict[str, Any], dict[str, TensorInfo]]:
        """Metadata and tensors by name, in the file's order. Raise EngineError naming the file and the fault."""
        magic = self._buffer[:4]
        if magic != MAGIC:
            self._fail(f"this is not a GGUF file; it looks like {_looks_like(self._buffer[:512])}")
        self._position = 4
        version = self._u32()
        if version not in VERSIONS:
            if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
                self._fail("this GGUF file is big-endian; only little-endian files are supported")
            self._fail(f"GGUF version {version} is not supported (only 2 and 3); convert the model again")
        tensor_count = self._count(_SMALLEST_TENSOR_BYTES, "tensors")
        pair_count = self._count(_SMALLEST_PAIR_BYTES, "metadata entries")
        metadata: dict[str, Any] = {}
        for _ in range(pair_count):
            key = self._string("a metadata key")
            if key in metadata:
                self._fail(f"metadata key {key!r} is there twice")
            metadata[key] = self._value(self._u32(), key)
        return metadata, self._tensors(tensor_count, self._alignment(metadata))

    def _fail(self, problem: str) -> NoReturn:
        raise EngineError(f"{self._file_name}: {problem}")

    def _truncated(self, what: str) -> NoReturn:
        self._fail(f"the header ends inside {what} (byte {self._position} of {self._end}); {DOWNLOAD_AGAIN}")

    def _take(self, size_bytes: int, what: str) -> bytes:
        start, stop = self._position, self._position + size_bytes
        if stop > self._end:
            self._truncated(what)
        self._position = stop
        return self._buffer[start:stop]

    def _u32(self) -> int:
        return int.from_bytes(self._take(4, "a number"), "little")

    def _u64(self) -> int:
        return int.from_bytes(self._take(8, "a number"), "little")

    def _count(self, smallest_bytes: int, what: str) -> int:
        """A u64 count of things of at least ``smallest_bytes`` each, checked against what is left of the file."""
        count = self._u64()
        if count * smallest_bytes > self._end - self._position:
            self._fail(f"it claims {count} {what}, more than the file can hold; {DOWNLOAD_AGAIN}")
        return count

    def _string(self, what: str) -> str:
        length = self._u64()
        if length > self._end - self._position:
            self._fail(f"{what} claims {length} bytes, more than the file holds; {DOWNLOAD_AGAIN}")
        return self._decode(self._take(length, what), what)

    def _decode(self, data: bytes, what: str) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise EngineError(f"{self._file_name}: {what} is not valid UTF-8; {DOWNLOAD_AGAIN}") from error

    def _value(self, value_type: int, key: str, depth: int = 0) -> Any:
        if value_type == _STRING:
            return self._string(f"metadata {key!r}")
        if value_type == _ARRAY:
            return self._array(key, depth)
        dtype = _NUMBERS.get(value_type)
        if dtype is None:
            self._fail(f"metadata {key!r} has unknown value type {value_type}; {DOWNLOAD_AGAIN}")
        value = np.frombuffer(self._take(dtype.itemsize, f"metadata {key!r}"), dtype)[0].item()
        return self._bool(value, key) if value_type == _BOOL else value

    def _bool(self, value: int, key: str) -> bool:
        if value > 1:
            self._fail(f"metadata {key!r} is a boolean of value {value}; {DOWNLOAD_AGAIN}")
        return bool(value)

    def _array(self, key: str, depth: int) -> Any:
        element_type = self._u32()
        smallest_bytes = _SMALLEST_BYTES.get(element_type)
        if smallest_bytes is None:
            self._fail(f"metadata {key!r} has unknown element type {element_type}; {DOWNLOAD_AGAIN}")
        count = self._count(smallest_bytes, f"elements of metadata {key!r}")
        if element_type == _STRING:
            return self._strings(count, key)
        if element_type == _ARRAY:
            if depth == MAX_NESTED_ARRAYS:
                self._fail(f"metadata {key!r} nests arrays too deep; {DOWNLOAD_AGAIN}")
            return [self._array(key, depth + 1) for _ in range(count)]
        values = np.frombuffer(self._take(count * smallest_bytes, f"metadata {key!r}"), _NUMBERS[element_type])
        if element_type == _BOOL:
            self._bool(int(values.max(initial=0)), key)
            return values.astype(np.bool_)
        return values

    def _strings(self, count: int, key: str) -> list[str]:
        """Vocabularies hold hundreds of thousands of these, so the loop is written out."""
        buffer, end, stop = self._buffer, self._end, self._position
        number = struct.Struct("<Q").unpack_from
        strings = []
        try:
            for _ in range(count):
                start = stop + 8
                stop = start + number(buffer, stop)[0]
                if stop > end:
                    self._truncated(f"metadata {key!r}")
                strings.append(buffer[start:stop].decode())
        except struct.error:
            self._truncated(f"metadata {key!r}")
        except UnicodeDecodeError as error:
            raise EngineError(f"{self._file_name}: metadata {key!r} is not valid UTF-8; {DOWNLOAD_AGAIN}") from error
        self._position = stop
        return strings

    def _alignment(self, metadata: dict[str, Any]) -> int:
        alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            self._fail(f"general.alignment is {alignment!r}; it must be a power of two, 8 or more; {DOWNLOAD_AGAIN}")
        return alignment

    def _tensors(self, count: int, alignment: int) -> dict[str, TensorInfo]:
        relative: dict[str, TensorInfo] = {}
        for _ in range(count):
            info = self._tensor(alignment)
            if info.name in relative:
                self._fail(f"tensor {info.name!r} is there twice; {DOWNLOAD_AGAIN}")
            relative[info.name] = info
        data_start = -(-self._position // alignment) * alignment
        tensors = {
            name: TensorInfo(name, info.shape, info.type, data_start + info.offset, info.size_bytes)
            for name, info in relative.items()
        }
        needed_bytes = max((info.offset + info.size_bytes for info in tensors.values()), default=0)
        if needed_bytes > self._end:
            self._fail(f"truncated: {needed_bytes} bytes needed, {self._end} there: download it again")
        in_order = sorted(tensors.values(), key=lambda info: info.offset)
        for before, after in itertools.pairwise(in_order):
            if before.offset + before.size_bytes > after.offset:
                self._fail(f"tensors {before.name!r} and {after.name!r} overlap; {DOWNLOAD_AGAIN}")
        return tensors

    def _tensor(self, alignment: int) -> TensorInfo:
        """One tensor's entry; its offset is still relative to the data section."""
        name = self._string("a tensor name")
        dimensions = self._u32()
        if not 1 <= dimensions <= MAX_DIMENSIONS:
            self._fail(f"tensor {name!r} has {dimensions} dimensions; 1 to {MAX_DIMENSIONS} are possible")
        shape = tuple(self._u64() for _ in range(dimensions))[::-1]
        if 0 in shape:
            self._fail(f"tensor {name!r} has a dimension of zero: {shape}")
        type_number = self._u32()
        try:
            tensor_type = GGMLQuantizationType(type_number)
            block_elements, block_bytes = GGML_QUANT_SIZES[tensor_type]
        except (ValueError, KeyError) as error:
            raise EngineError(f"{self._file_name}: tensor {name!r} has unknown type {type_number}") from error
        if shape[-1] % block_elements:
            self._fail(
                f"tensor {name!r} has {shape[-1]} columns; {tensor_type.name} needs a multiple of {block_elements}"
            )
        offset = self._u64()
        if offset % alignment:
            self._fail(f"tensor {name!r} starts at byte {offset} of the data, which is not a multiple of {alignment}")
        return TensorInfo(name, shape, tensor_type, offset, math.prod(shape) // block_elements * block_bytes)
