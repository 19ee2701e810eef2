"""Files that only save time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import disk_cache


def test_what_is_stored_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "file"
    assert disk_cache.load(path) is None
    disk_cache.store(path, b"one")
    disk_cache.store(path, b"two")
    assert disk_cache.load(path) == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_a_folder_that_cannot_be_made_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    disk_cache.store_json(tmp_path / "file" / "below", {"a": 1})
    assert disk_cache.load_json(tmp_path / "file" / "below") == {}


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    disk_cache.store(path, b"old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    disk_cache.store(path, b"new")
    assert disk_cache.load(path) == b"old"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", [
    lambda data: b"",
    lambda data: data[:-4],
    lambda data: data + b"\0\0\0\0",
    lambda data: data[:-1] + b"!",
    lambda data: b"what another version wrote, without a digest",
])  # fmt: skip
def test_a_damaged_file_counts_as_none(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "file"
    disk_cache.store(path, b"kernel" * 10)
    path.write_bytes(damage(path.read_bytes()))
    assert disk_cache.load(path) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000, "\ud800".encode("utf-8", "surrogatepass")])
def test_damaged_json_counts_as_empty(tmp_path: Path, text: str | bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert disk_cache.load_json(path) == {}
