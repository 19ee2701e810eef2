"""The ids that llama.cpp's own tokenizer gives (tests/data/tokenizers/make.py), and the text back from them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.text.stream import TextStream
from engine.text.tokenizer import Tokenizer
from engine.weights.gguf import GGUFFile
from tests.engine.text.conftest import sentencepiece_metadata
from tests.engine.text.varied import strings_sha256, varied_strings

FOLDER = Path(__file__).parents[2] / "data" / "tokenizers"
STRINGS = varied_strings(2000)


def reference(name: str, count: int = 2000) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    assert content["strings_sha256"] == strings_sha256(STRINGS[:count]), "made from other strings"
    return content


def check(tokenizer: Tokenizer, expected: list[list[int] | None]) -> None:
    """Every id, and the text back at once and token by token."""
    for text, ids in zip(STRINGS, expected, strict=False):
        encoded = tokenizer.encode(text)
        assert ids is None or encoded == ids, text
        assert not any(map(tokenizer.is_special, encoded))
        assert tokenizer.decode(encoded) == text
        stream = TextStream(tokenizer)
        pieces = [stream.push(id) for id in encoded]
        assert all("\ufffd" not in piece for piece in pieces)
        assert "".join(pieces) + stream.flush() == text


def test_smollm2(smollm2: Tokenizer) -> None:
    check(smollm2, reference("smollm2")["ids"])


def test_gemma3(gemma3_path: Path) -> None:
    with GGUFFile.open(gemma3_path) as file:
        tokenizer = Tokenizer.from_gguf(file.metadata)
    assert tokenizer is not None
    expected = reference("gemma3")["ids"]
    check(tokenizer, expected)
    assert [ids is None for ids in expected] == ["</s>" in text for text in STRINGS]
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (2, 1, True)
    assert tokenizer.encode("<bos><start_of_turn>hi", special=True) == [2, 105, 2202]


@pytest.mark.parametrize("space_prefix", [False, True])
def test_sentencepiece(space_prefix: bool) -> None:
    content = reference("sentencepiece", 400)
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(space_prefix))
    assert tokenizer is not None
    check(tokenizer, content["ids_space_prefix" if space_prefix else "ids"])
