"""A file is there whole, or as it was before."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine import AtomicFile, EngineError


def only_file(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def test_a_committed_file_replaces_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with AtomicFile(path) as file:
        file.write("new\nü")
        assert path.read_text() == "old"
        file.commit()
    assert path.read_text(encoding="utf-8") == "new\nü"
    assert only_file(tmp_path) == ["out.json"]


def test_without_commit_nothing_changes(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), AtomicFile(path) as file:
        file.write("half")
        raise ZeroDivisionError
    assert path.read_text() == "old"
    assert only_file(tmp_path) == ["out.json"]


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    plain, atomic = tmp_path / "plain", tmp_path / "atomic"
    plain.touch()
    with AtomicFile(atomic) as file:
        file.commit()
    assert plain.stat().st_mode == atomic.stat().st_mode


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    with AtomicFile(link) as file:
        file.write("text")
        file.commit()
    assert link.is_symlink()
    assert target.read_text() == "text"


@pytest.mark.parametrize("bad", [".", "missing/out.json", "file/out.json", "x" * 300, "nul\0"])
def test_a_path_that_cannot_be_written_is_one_line_at_once(tmp_path: Path, bad: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match="cannot write") as caught:
        AtomicFile(tmp_path / bad)
    assert "\n" not in str(caught.value)
    assert only_file(tmp_path) == ["file"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_file_without_write_permission_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    path.touch(0o444)
    with pytest.raises(EngineError, match="permission denied"):
        AtomicFile(path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line() -> None:
    with pytest.raises(EngineError, match=r"cannot write /dev/full: No space left"), AtomicFile("/dev/full") as file:
        file.write("x" * 100_000)
        file.commit()
