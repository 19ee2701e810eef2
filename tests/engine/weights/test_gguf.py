"""A GGUF header is parsed in full, and every way to be wrong ends in one clear line."""

from __future__ import annotations

import os
import random
import struct
import time
import tracemalloc
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine.errors import EngineError
from engine.weights.gguf import GGUFFile

F32, Q8_0 = 0, 8
U32, STRING, ARRAY, BOOL, U64 = 4, 8, 9, 7, 10


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def pair(key: str, value_type: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", value_type) + value


def array(element_type: int, count: int, data: bytes) -> bytes:
    return struct.pack("<IQ", element_type, count) + data


def tensor(name: str, dimensions: tuple[int, ...] = (32, 2), type_number: int = F32, offset: int = 0) -> bytes:
    """``dimensions`` in the file's order: columns first."""
    shape = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + shape + struct.pack("<IQ", type_number, offset)


def header(
    pairs: list[bytes] | None = None,
    tensors: list[bytes] | None = None,
    *,
    version: int = 3,
    tensor_count: int | None = None,
    pair_count: int | None = None,
    data_bytes: int = 256,
) -> bytes:
    pairs = [pair("general.architecture", STRING, text("llama"))] if pairs is None else pairs
    tensors = [tensor("w")] if tensors is None else tensors
    counts = (
        len(tensors) if tensor_count is None else tensor_count,
        len(pairs) if pair_count is None else pair_count,
    )
    head = b"GGUF" + struct.pack("<IQQ", version, *counts) + b"".join(pairs) + b"".join(tensors)
    return head + b"\0" * (-len(head) % 32) + bytes(index % 251 for index in range(data_bytes))


def write(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(data)
    return path


def assert_one_line(error: EngineError) -> None:
    assert "\n" not in str(error)
    assert "model.gguf" in str(error)


def test_reads_what_the_reference_writer_wrote(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    weights = np.arange(6 * 64, dtype=np.float32).reshape(6, 64)
    quantised = gguf.quants.quantize(weights, gguf.GGMLQuantizationType.Q8_0)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint64("a.u64", 2**63 + 1)
    writer.add_int8("a.i8", -3)
    writer.add_float64("a.f64", 0.1)
    writer.add_bool("a.bool", True)
    writer.add_string("a.string", "café 🙂")
    writer.add_array("a.strings", ["one", "", "ünï"])
    writer.add_array("a.ints", [1, -2, 3])
    writer.add_array("a.bools", [True, False])
    writer.add_array("a.nested", [[1, 2], [3]])
    writer.add_tensor("plain", weights)
    writer.add_tensor("quantised", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    with GGUFFile.open(path) as file:
        assert file.metadata["general.architecture"] == "llama"
        assert file.metadata["a.u64"] == 2**63 + 1
        assert file.metadata["a.i8"] == -3
        assert file.metadata["a.f64"] == 0.1
        assert file.metadata["a.bool"] is True
        assert file.metadata["a.string"] == "café 🙂"
        assert file.metadata["a.strings"] == ["one", "", "ünï"]
        np.testing.assert_array_equal(file.metadata["a.ints"], [1, -2, 3])
        np.testing.assert_array_equal(file.metadata["a.bools"], [True, False])
        assert [list(inner) for inner in file.metadata["a.nested"]] == [[1, 2], [3]]
        assert file.tensors["plain"].shape == (6, 64)
        assert file.tensors["quantised"].type is gguf.GGMLQuantizationType.Q8_0
        assert file.tensors["quantised"].size_bytes == 6 * 2 * 34
        np.testing.assert_array_equal(file.data("plain").view(np.float32).reshape(6, 64), weights)
        np.testing.assert_array_equal(file.data("quantised"), quantised.reshape(-1))


def test_what_was_read_outlives_the_file(tmp_path: Path) -> None:
    file = GGUFFile.open(write(tmp_path, header()))
    data = file.data("w")
    file.close()
    assert data[3] == 3
    with pytest.raises(EngineError, match="closed"):
        file.data("w")


def test_a_file_cut_short_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, header(data_bytes=1 << 20, tensors=[tensor("w", offset=(1 << 20) - 256)]))
    with GGUFFile.open(path) as file:
        os.truncate(path, 100_000)
        with pytest.raises(EngineError, match="cut short while it was read"):
            file.data("w")


def test_version_2_is_read(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, header(version=2))) as file:
        assert list(file.tensors) == ["w"]


def test_an_unknown_tensor_is_named(tmp_path: Path) -> None:
    with GGUFFile.open(write(tmp_path, header())) as file, pytest.raises(EngineError, match="no tensor 'absent'"):
        file.data("absent")


FOREIGN = {
    "empty": (b"", "empty"),
    "three bytes": (b"GGU", "not a GGUF file"),
    "safetensors": (struct.pack("<Q", 40) + b'{"a":{"dtype":"F32"}}', "safetensors"),
    "zip": (b"PK\x03\x04" + b"\0" * 90, "zip archive"),
    "html": (b"\n<!DOCTYPE html><html><body>404</body></html>", "HTML page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS pointer"),
    "text": (b"hello there\n", "a text file"),
    "old": (b"tjgg" + b"\0" * 60, "before GGUF"),
    "noise": (bytes(range(256)), "another kind of file"),
}


@pytest.mark.parametrize(("data", "message"), FOREIGN.values(), ids=FOREIGN)
def test_says_what_a_foreign_file_looks_like(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        GGUFFile.open(write(tmp_path, data))
    assert_one_line(caught.value)


BROKEN = {
    "version": (header(version=1), "version 1 is not supported"),
    "big-endian": (header(version=3 << 24), "big-endian"),
    "tensor count": (header(tensor_count=2**63), "claims 9223372036854775808 tensors"),
    "pair count": (header(pair_count=2**40), "claims 1099511627776 metadata entries"),
    "key length": (header([struct.pack("<Q", 2**62) + b"abc"]), "a metadata key claims"),
    "string length": (header([pair("k", STRING, struct.pack("<Q", 2**50))]), "metadata 'k' claims"),
    "array count": (header([pair("k", ARRAY, array(U32, 2**60, b""))]), "elements of metadata 'k'"),
    "string array count": (header([pair("k", ARRAY, array(STRING, 2**60, b""))]), "elements of metadata 'k'"),
    "string in array": (header([pair("k", ARRAY, array(STRING, 1, struct.pack("<Q", 2**50)))]), "inside metadata 'k'"),
    "nesting": (header([pair("k", ARRAY, array(ARRAY, 1, b"") * 9)]), "nests arrays too deep"),
    "value type": (header([pair("k", 77, b"\0" * 8)]), "unknown value type 77"),
    "element type": (header([pair("k", ARRAY, array(77, 1, b"\0" * 8))]), "unknown element type 77"),
    "boolean": (header([pair("k", BOOL, b"\x02")]), "boolean of value 2"),
    "UTF-8": (header([pair("k", STRING, text(b"\xff\xfe"))]), "not valid UTF-8"),
    "UTF-8 in array": (header([pair("k", ARRAY, array(STRING, 1, text(b"\xff")))]), "not valid UTF-8"),
    "key twice": (header([pair("k", U32, b"\0" * 4)] * 2), "'k' is there twice"),
    "alignment 0": (header([pair("general.alignment", U32, struct.pack("<I", 0))]), "general.alignment is 0"),
    "alignment 24": (header([pair("general.alignment", U32, struct.pack("<I", 24))]), "general.alignment is 24"),
    "alignment text": (header([pair("general.alignment", STRING, text("x"))]), "general.alignment is 'x'"),
    "split without a number": (header([pair("split.count", U32, struct.pack("<I", 3))]), "split.no is None"),
    "tensor twice": (header(tensors=[tensor("w"), tensor("w")]), "'w' is there twice"),
    "five dimensions": (header(tensors=[tensor("w", (1,) * 5)]), "'w' has 5 dimensions"),
    "no dimensions": (header(tensors=[tensor("w", ())]), "'w' has 0 dimensions"),
    "zero rows": (header(tensors=[tensor("w", (32, 0))]), "dimension of zero"),
    "tensor type": (header(tensors=[tensor("blk.0.x", type_number=99)]), "'blk.0.x' has unknown type 99"),
    "columns": (header(tensors=[tensor("w", (33, 2), Q8_0)]), "33 columns; Q8_0 needs a multiple of 32"),
    "unaligned": (header(tensors=[tensor("w", offset=4)]), "not a multiple of 32"),
    "past the end": (header(data_bytes=255), r"truncated: \d+ bytes needed, \d+ there: download it again"),
    "huge tensor": (header(tensors=[tensor("w", (2**63, 2**63))]), "truncated"),
    "huge offset": (header(tensors=[tensor("w", offset=2**64 - 32)]), "truncated"),
    "overlap": (header(tensors=[tensor("a"), tensor("b", offset=32)], data_bytes=400), "'a' and 'b' overlap"),
}


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_header_is_refused_at_once(tmp_path: Path, data: bytes, message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        GGUFFile.open(write(tmp_path, data))
    assert_one_line(caught.value)


def test_paths_that_are_no_readable_file(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"absent\.gguf: there is no such file"):
        GGUFFile.open(tmp_path / "absent.gguf")
    with pytest.raises(EngineError, match="directory"):
        GGUFFile.open(tmp_path)
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    with pytest.raises(EngineError, match=r"pipe\.gguf: this is not a regular file"):
        GGUFFile.open(pipe)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, header())

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(EngineError, match="cannot be read: Permission denied") as caught:
        GGUFFile.open(path)
    assert_one_line(caught.value)


def test_damage_gives_success_or_an_engine_error_and_little_memory(tmp_path: Path) -> None:
    """Every truncation and 1,500 random byte changes of a small file that uses each kind of value."""
    sound = header(
        [
            pair("general.alignment", U32, struct.pack("<I", 32)),
            pair("strings", ARRAY, array(STRING, 3, text("a") + text("bc") + text("é"))),
            pair("nested", ARRAY, array(ARRAY, 2, array(U32, 1, b"\1\0\0\0") + array(BOOL, 2, b"\0\1"))),
            pair("big", U64, struct.pack("<Q", 7)),
        ],
        [tensor("w", (32, 2), F32, 0), tensor("q", (32, 1), Q8_0, 256)],
        data_bytes=256 + 34,
    )
    rng = random.Random(7)
    damaged = [sound[:length] for length in range(len(sound))]
    for _ in range(1500):
        data = bytearray(sound)
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data) - 290)] = rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))
        damaged.append(bytes(data))
    path = write(tmp_path, sound)
    GGUFFile.open(path).close()
    refused = 0
    tracemalloc.start()
    try:
        for data in damaged:
            path.write_bytes(data)
            try:
                with GGUFFile.open(path) as file:
                    for name in file.tensors:
                        file.data(name).sum()
            except EngineError as error:
                refused += 1
                assert_one_line(error)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(sound) < refused < len(damaged)
    assert peak_bytes < 4_000_000


def test_a_large_vocabulary_is_read_quickly(tmp_path: Path) -> None:
    words = b"".join(text(f"token{index}") for index in range(50_000))
    path = write(tmp_path, header([pair("tokens", ARRAY, array(STRING, 50_000, words))]))
    started = time.thread_time()  # a busy machine adds nothing to it
    with GGUFFile.open(path) as file:
        seconds = time.thread_time() - started
        assert file.metadata["tokens"][49_999] == "token49999"
    assert seconds < 0.3
