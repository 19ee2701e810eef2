"""A model in parts is one model, whichever part is given; parts that are not one model are refused in one line."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine import Engine
from engine.errors import EngineError
from engine.weights.gguf import GGUFFile
from tests.engine.tiny_model import write_tiny_llama


@pytest.fixture(scope="module")
def made_parts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The tiny model in three parts."""
    folder = tmp_path_factory.mktemp("parts")
    first = write_tiny_llama(folder / "tiny.gguf", tensors_a_part=8)
    parts = sorted(folder.iterdir())
    assert [part.name for part in parts] == [f"tiny-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    assert first == parts[0]
    return parts


@pytest.fixture
def parts(made_parts: list[Path], tmp_path: Path) -> list[Path]:
    """The same, for a test to spoil."""
    return [Path(shutil.copy(part, tmp_path)) for part in made_parts]


def write_part(path: Path, number: int | None, count: int | None, tensors: list[str], total: int | None = None) -> None:
    """A file of small tensors that calls itself part ``number`` of ``count``."""
    writer = gguf.GGUFWriter(path, "llama")
    if count is not None:
        writer.add_uint16("split.count", count)
    if number is not None:
        writer.add_uint16("split.no", number)
    if total is not None:
        writer.add_int32("split.tensors.count", total)
    for name in tensors:
        writer.add_tensor(name, np.full((2, 32), len(name), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def refusal(path: Path) -> str:
    with pytest.raises(EngineError) as caught:
        GGUFFile.open(path)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("given", [0, 1, 2])
def test_any_part_opens_the_whole_model(made_parts: list[Path], given: int, tmp_path: Path) -> None:
    whole = write_tiny_llama(tmp_path / "whole.gguf")
    with GGUFFile.open(whole) as expected, GGUFFile.open(made_parts[given]) as file:
        assert (file.path, file.name) == (made_parts[0], "tiny")
        assert file.file_bytes == sum(part.stat().st_size for part in made_parts)
        assert list(file.tensors) == list(expected.tensors)
        split = {key for key in file.metadata if key.startswith("split.")}
        assert file.metadata.keys() - split == expected.metadata.keys()
        for name, info in expected.tensors.items():
            assert (file.tensors[name].shape, file.tensors[name].type) == (info.shape, info.type)
            assert np.array_equal(file.data(name), expected.data(name))


def test_an_engine_runs_from_parts(made_parts: list[Path], tmp_path: Path) -> None:
    logits = []
    for path in (write_tiny_llama(tmp_path / "whole.gguf"), made_parts[1]):
        with Engine.open(path, context=64) as engine:
            logits.append(engine.session().prefill([5, 6, 7]))
    assert np.array_equal(logits[0], logits[1])


def test_missing_parts_are_named(parts: list[Path]) -> None:
    parts[1].unlink()
    assert "1 of the model's 3 parts is missing beside it: tiny-00002-of-00003.gguf; download" in refusal(parts[2])
    parts[0].unlink()
    message = refusal(parts[2])
    assert "2 of the model's 3 parts are missing" in message
    assert "tiny-00001-of-00003.gguf, tiny-00002-of-00003.gguf" in message


def test_a_part_under_another_name_says_which(parts: list[Path]) -> None:
    renamed = parts[1].rename(parts[1].with_name("model.gguf"))
    assert "part 2 of 3 of a split model, whose name must end in -00002-of-00003.gguf" in refusal(renamed)
    wrong = parts[2].rename(parts[2].with_name("tiny-00002-of-00003.gguf"))
    assert "part 3 of 3 of a split model, whose name must end in -00003-of-00003.gguf" in refusal(wrong)


def test_a_part_in_anothers_place(parts: list[Path]) -> None:
    shutil.copy(parts[1], parts[2])
    assert "its header says that it is part 2 of 3, not part 3 of 3" in refusal(parts[0])


def test_a_whole_model_in_a_parts_place(parts: list[Path]) -> None:
    write_tiny_llama(parts[1])
    assert "it is a whole model or one without a part's number, not part 2 of 3" in refusal(parts[0])


def test_a_part_cut_short_is_named(parts: list[Path]) -> None:
    with parts[2].open("r+b") as file:
        file.truncate(parts[2].stat().st_size - 100)
    assert re.match(r"tiny-00003-of-00003\.gguf: truncated: \d+ bytes needed", refusal(parts[0]))


@pytest.mark.parametrize(
    ("tensors", "total", "expected"),
    [
        ((["a", "b"], ["b"]), 3, "m-00002-of-00002.gguf: tensor 'b' is in m-00001-of-00002.gguf too"),
        ((["a", "b"], ["c"]), 4, "m-00001-of-00002.gguf: the header speaks of 4 tensors and the 2 parts have 3"),
    ],
)
def test_parts_of_different_conversions(
    tmp_path: Path, tensors: tuple[list[str], list[str]], total: int, expected: str
) -> None:
    paths = [tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, (path, names) in enumerate(zip(paths, tensors, strict=True)):
        write_part(path, number, 2, names, total)
    assert refusal(paths[0]).startswith(expected)


def test_parts_that_disagree_on_the_count(tmp_path: Path) -> None:
    first, second = (tmp_path / f"m-0000{number}-of-00002.gguf" for number in (1, 2))
    write_part(first, 0, 2, ["a"], 2)
    write_part(second, 1, 3, ["b"], 2)
    assert "its header says that it is part 2 of 3, not part 2 of 2" in refusal(first)
    write_part(second, 1, 2, ["b"], 5)
    assert "m-00002-of-00002.gguf: split.tensors.count is 5 here and 2 in m-00001-of-00002.gguf" in refusal(first)


@pytest.mark.parametrize(
    ("number", "count", "expected"),
    [(5, 2, "split.no is 5; 0 to 1 is expected"), (None, 2, "split.no is None"), (0, 1, None), (None, 0, None)],
)
def test_numbers_out_of_range(tmp_path: Path, number: int | None, count: int, expected: str | None) -> None:
    path = tmp_path / "m.gguf"
    write_part(path, number, count, ["a"])
    if expected is None:  # one part is a whole model, whatever its name
        with GGUFFile.open(path) as file:
            assert list(file.tensors) == ["a"]
    else:
        assert expected in refusal(path)
