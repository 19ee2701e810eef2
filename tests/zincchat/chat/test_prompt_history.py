"""The prompt history survives what disks and editors do to it."""

from __future__ import annotations

from pathlib import Path

from zincchat.chat.prompt_history import MAX_ENTRIES, PromptHistory


def test_a_damaged_line_costs_that_line_only(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_text('"one"\n"two\n17\n' + "[" * 100_000 + '\n"three\\nlines"\n')
    history = PromptHistory(path)
    assert history.problem is None
    assert [history.older(""), history.older(""), history.older("")] == ["three\nlines", "one", None]


def test_binary_rubbish_is_reported_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.write_bytes(b"\xff\xfe\x00")
    history = PromptHistory(path)
    assert "not UTF-8" in (history.problem or "")
    history.add("new")
    assert path.read_bytes() == b"\xff\xfe\x00"
    assert history.older("") == "new"


def test_a_device_in_its_place_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "history"
    path.symlink_to("/dev/zero")
    assert "not a regular file" in (PromptHistory(path).problem or "")


def test_repeats_are_stored_once_and_the_file_stays_small(tmp_path: Path) -> None:
    path = tmp_path / "history"
    history = PromptHistory(path)
    for number in range(2 * MAX_ENTRIES + 5):
        history.add(str(number))
        history.add(str(number))
    assert len(path.read_text().splitlines()) < 2 * MAX_ENTRIES
    assert PromptHistory(path).older("") == str(2 * MAX_ENTRIES + 4)


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "history"
    PromptHistory(path).add("a secret")
    assert path.stat().st_mode & 0o777 == 0o600
