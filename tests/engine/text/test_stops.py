"""A reply ends at every id that any of a model's files calls an end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import EngineError
from engine.text.stops import END_OF_TURN, stop_ids
from engine.text.tokenizer import Tokenizer
from tests.engine.text.conftest import tiny_metadata

FILES = ("generation_config.json", "config.json")


def stops(folder: Path | None = None, **changes: Any) -> frozenset[int]:
    metadata = tiny_metadata(**changes)
    tokenizer = Tokenizer.from_gguf(metadata)
    assert tokenizer is not None
    return stop_ids(tokenizer, metadata, folder)


def with_tokens(*added: tuple[str, int]) -> dict[str, Any]:
    """The tiny vocabulary without its own control tokens, ending in ``added`` (spelling, token type)."""
    entries = tiny_metadata()
    tokens = [f"[PAD{id}]" if id < 3 else token for id, token in enumerate(entries["tokenizer.ggml.tokens"])]
    types = entries["tokenizer.ggml.token_type"].copy()
    types[:3] = 5
    return {
        "tokens": [*tokens, *(token for token, _ in added)],
        "token_type": np.append(types, [kind for _, kind in added]).astype(np.int32),
        "bos_token_id": None,
        "eos_token_id": None,
    }


def write(folder: Path, name: str, value: Any) -> Path:
    (folder / name).write_text(value if isinstance(value, str) else json.dumps(value))
    return folder


def test_gguf_states_three_and_the_well_known_control_tokens_count_too() -> None:
    assert stops() == {0, 2}  # <|endoftext|> by its spelling, <|im_end|> by both
    assert stops(eos_token_id=80, eot_token_id=70, eom_token_id=71) == {0, 2, 70, 71, 80}


@pytest.mark.parametrize("spelling", END_OF_TURN)
def test_every_well_known_spelling_ends_a_turn_if_it_is_a_control_token(spelling: str) -> None:
    assert stops(**with_tokens((spelling, 3))) == {320}
    # Gemma's "</s>" is an HTML tag, user-defined; others have such tokens as plain words.
    assert stops(**with_tokens((spelling, 4))) == set()
    assert stops(**with_tokens((spelling, 1))) == set()


def test_a_model_that_states_nothing_has_none() -> None:
    assert stops(**with_tokens()) == set()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(("value", "ids"), [(70, {70}), ([70, 71], {70, 71}), ([], set()), (None, set())])
def test_the_configs_of_a_folder_state_one_or_several(tmp_path: Path, name: str, value: Any, ids: set[int]) -> None:
    assert stops(write(tmp_path, name, {"eos_token_id": value}), **with_tokens()) == ids


def test_a_config_of_text_and_vision_states_it_in_its_text_part(tmp_path: Path) -> None:
    write(tmp_path, "config.json", {"eos_token_id": 70, "text_config": {"eos_token_id": [71]}})
    assert stops(tmp_path, **with_tokens()) == {70, 71}


@pytest.mark.parametrize("token", ["<stop>", {"content": "<stop>", "special": True}])
def test_the_tokenizer_config_of_a_folder_states_a_spelling(tmp_path: Path, token: Any) -> None:
    assert stops(write(tmp_path, "tokenizer_config.json", {"eos_token": token}), **with_tokens(("<stop>", 3))) == {320}


def test_all_places_add_up(tmp_path: Path) -> None:
    write(tmp_path, "generation_config.json", {"eos_token_id": [70, 71]})
    write(tmp_path, "config.json", {"eos_token_id": 72})
    write(tmp_path, "tokenizer_config.json", {"eos_token": "<|im_start|>"})
    assert stops(tmp_path, eot_token_id=73) == {0, 1, 2, 70, 71, 72, 73}


def test_a_folder_without_those_files_is_like_none(tmp_path: Path) -> None:
    assert stops(tmp_path) == stops()


BAD: dict[str, tuple[str | None, Any, str]] = {
    "metadata": (None, "x", "tokenizer.ggml.eot_token_id is 'x', outside its vocabulary of 320"),
    "id": ("generation_config.json", {"eos_token_id": [2, 320]}, "eos_token_id in generation_config.json is"),
    "negative": ("config.json", {"eos_token_id": -1}, "eos_token_id in config.json is -1, outside"),
    "yes": ("config.json", {"eos_token_id": True}, "eos_token_id in config.json is True"),
    "spelling": ("tokenizer_config.json", {"eos_token": "<nowhere>"}, "'<nowhere>', which is no token"),
    "number": ("tokenizer_config.json", {"eos_token": 5}, "is 5, which is no token"),
    "cut off": ("config.json", '{"eos_token_id":', "config.json is not JSON at line 1"),
    "deep": ("config.json", "[" * 100_000, "config.json is not JSON"),
    "list": ("config.json", "[]", "config.json must hold a JSON object, not list"),
}


@pytest.mark.parametrize(("name", "value", "message"), BAD.values(), ids=BAD)
def test_what_makes_no_sense_is_named_in_one_line(tmp_path: Path, name: str | None, value: Any, message: str) -> None:
    folder = write(tmp_path, name, value) if name else None
    with pytest.raises(EngineError, match=message) as caught:
        stops(folder, **({} if name else {"eot_token_id": value}))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(EngineError, match="is not UTF-8 text"):
        stops(tmp_path)


def test_smollm2(smollm2: Tokenizer, smollm2_metadata: dict[str, Any]) -> None:
    assert stop_ids(smollm2, smollm2_metadata) == {0, 2}
