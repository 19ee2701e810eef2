"""What a model on disk is, and how much of it fits, is said from its headers."""

from __future__ import annotations

from pathlib import Path

import gguf
import pytest

from engine import DeviceRoom, EngineError, device_room, inspect_model, list_devices
from tests.engine.hf_to_gguf import MODELS
from tests.engine.tiny_model import write_tiny_llama

ROOM = DeviceRoom("Card", 1 << 40, False)


def test_a_gguf_file(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", context=4096)
    found = inspect_model(path)
    assert (found.architecture, found.quantisation, found.trained_context) == ("llama", "Q4_1", 4096)
    assert (found.file_bytes, found.problem) == (path.stat().st_size, None)
    assert (found.needed_bytes, found.largest_context) == (None, None)
    assert found.parameters == 320 * 64 + 2 * (4 * 64 * 64 - 2 * 32 * 64 + 3 * 64 * 96 + 2 * 64) + 64


def test_parts_count_together(tmp_path: Path) -> None:
    first = write_tiny_llama(tmp_path / "m.gguf", tensors_a_part=10)
    assert inspect_model(first).file_bytes == sum(part.stat().st_size for part in tmp_path.iterdir())


def test_a_hugging_face_folder() -> None:
    found = inspect_model(MODELS / "llama", ROOM)
    assert (found.architecture, found.quantisation, found.problem) == ("llama", "BF16", None)
    assert found.largest_context == found.trained_context


def test_how_much_fits(tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "m.gguf", context=1 << 20)
    needed = inspect_model(path, ROOM).needed_bytes
    assert needed is not None
    contexts = {}
    for free_bytes in (needed - 1, needed, needed + (1 << 30)):
        contexts[free_bytes] = inspect_model(path, DeviceRoom("Card", free_bytes, False)).largest_context or 0
    none, some, more = contexts.values()
    assert none == 0
    assert 256 <= some < more <= 1 << 20


def test_a_model_that_cannot_be_run_says_why(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = inspect_model(tmp_path / "m.gguf", ROOM)
    assert found.architecture == "mamba"
    assert found.problem is not None and "'mamba' is not supported" in found.problem
    assert found.largest_context is None


def test_what_is_no_model_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"nonsense")
    with pytest.raises(EngineError, match="not a GGUF file"):
        inspect_model(tmp_path / "m.gguf")


def test_the_room_of_a_device() -> None:
    room = device_room()
    assert (room.name, room.row_kernels) in [(device.name, device.is_software) for device in list_devices()]
    assert room.free_bytes > 0
    with pytest.raises(EngineError, match="no device matches 'voodoo'"):
        device_room("voodoo")
