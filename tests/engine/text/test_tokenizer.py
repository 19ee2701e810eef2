"""Text becomes the ids that the model was trained on, and comes back unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import EngineError
from engine.text.tokenizer import Tokenizer
from tests.engine.text.conftest import sentencepiece_metadata, tiny_metadata
from tests.engine.text.varied import varied_strings
from tests.engine.tiny_model import byte_characters

REFERENCE = json.loads((Path(__file__).parents[2] / "data" / "ref_smollm2.json").read_text())


def build(pre: str = "smollm", **changes: Any) -> Tokenizer:
    tokenizer = Tokenizer.from_gguf(tiny_metadata(pre, **changes))
    assert tokenizer is not None
    return tokenizer


def words(tokenizer: Tokenizer, text: str) -> list[str]:
    """How ``text`` is split before merging, for a vocabulary in which every word of the test is a token."""
    return [tokenizer.token_bytes(id).decode() for id in tokenizer.encode(text)]


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "qwen2", "qwen35", "smaug-bpe", "tekken"])
def test_round_trip_of_varied_strings(pre: str) -> None:
    tokenizer = build(pre)
    for text in varied_strings(2000):
        for special in (False, True):
            ids = tokenizer.encode(text, special=special)
            assert tokenizer.decode(ids) == text
            assert b"".join(map(tokenizer.token_bytes, ids)) == text.encode()


def test_merges_are_applied_in_their_order(tiny: Tokenizer) -> None:
    assert words(tiny, " the the") == [" the", " the"]


SPLITS = {
    # smollm isolates every digit, GPT-2 keeps a number whole, Llama 3 takes up to three digits, Qwen 2 one;
    # GPT-2 gives the space to the number, Llama 3 and Qwen 2 do not; contractions of capitals split apart.
    "smollm": (" 12345", [" ", "1", "2", "3", "4", "5"]),
    "gpt-2": (" 12345", [" 12345"]),
    "llama-bpe": (" 12345", [" ", "123", "45"]),
    "llama3": (" 12345", [" ", "123", "45"]),
    "smaug-bpe": (" 12345", [" ", "123", "45"]),
    "qwen2": (" 12345", [" ", "1", "2", "3", "4", "5"]),
    "qwen35": (" 12345", [" ", "1", "2", "3", "4", "5"]),
    "tekken": (" 12345", [" ", "1", "2", "3", "4", "5"]),
}


@pytest.mark.parametrize(("pre", "case"), SPLITS.items(), ids=SPLITS)
def test_each_pre_tokenizer_splits_digits_its_own_way(pre: str, case: tuple[str, list[str]]) -> None:
    text, expected = case
    tokens, types, _ = vocabulary_of_words(["Ġ1", "12", "123", "1234", "12345", "Ġ12345", "45"])
    merges = ["1 2", "12 3", "4 5", "123 45", "Ġ 12345"]
    tokenizer = build(pre, tokens=tokens, token_type=types, merges=merges)
    assert words(tokenizer, text) == expected


def vocabulary_of_words(extra: list[str]) -> tuple[list[str], Any, list[str]]:
    metadata = tiny_metadata()
    base = metadata["tokenizer.ggml.tokens"][:259]
    types = metadata["tokenizer.ggml.token_type"][:259].tolist() + [1] * len(extra)
    return base + extra, np.array(types, np.int32), []


def in_byte_characters(text: str) -> str:
    return "".join(byte_characters()[byte] for byte in text.encode())


def merged(*wholes: str) -> dict[str, Any]:
    """A vocabulary of bytes, and of ``wholes`` with what is needed to merge each from the left."""
    tokens, merges = [], []
    for whole in map(in_byte_characters, wholes):
        for end in range(2, len(whole) + 1):
            tokens.append(whole[:end])
            merges.append(f"{whole[: end - 1]} {whole[end - 1]}")
    extra = list(dict.fromkeys(tokens))
    tokens, types, _ = vocabulary_of_words(extra)
    return {"tokens": tokens, "token_type": types, "merges": list(dict.fromkeys(merges))}


MARKS = {
    # A combining mark belongs to the word for Qwen 3.5 and Tekken, not for Qwen 2 and Llama 3.
    "qwen2": ["e", "\u0301"],
    "llama-bpe": ["e", "\u0301"],
    "qwen35": ["e\u0301"],
    "tekken": ["e\u0301"],
}


@pytest.mark.parametrize(("pre", "expected"), MARKS.items(), ids=MARKS)
def test_combining_marks_belong_to_the_word_for_some(pre: str, expected: list[str]) -> None:
    assert words(build(pre, **merged("e\u0301", "\u0301")), "e\u0301") == expected


CASES = {
    "qwen35": ["helloWorld", "'S", "/\n"],
    "tekken": ["hello", "World", "'S", "/\n"],
    "llama-bpe": ["helloWorld", "'S", "/\n"],
    "gpt-2": ["helloWorld", "'", "S", "/", "\n"],
}


@pytest.mark.parametrize(("pre", "expected"), CASES.items(), ids=CASES)
def test_tekken_splits_at_capitals(pre: str, expected: list[str]) -> None:
    tokenizer = build(pre, **merged("helloWorld", "World", "'S", "/\n"))
    assert words(tokenizer, "helloWorld'S/\n") == expected


@pytest.mark.parametrize(("pre", "expected"), [("tekken", ["!\n/\n"]), ("qwen2", ["!\n", "/\n"])])
def test_tekken_takes_slashes_with_line_ends(pre: str, expected: list[str]) -> None:
    assert words(build(pre, **merged("!\n/\n", "!\n", "/\n")), "!\n/\n") == expected


def test_qwen2_and_llama_split_words_alike_and_smollm_otherwise() -> None:
    tokens, types, _ = vocabulary_of_words(["(a", "'S", ")Ċ"])
    merges = ["( a", "' S", ") Ċ"]
    for pre in ("qwen2", "llama-bpe"):
        assert words(build(pre, tokens=tokens, token_type=types, merges=merges), "(a'S)\n") == ["(a", "'S", ")\n"]
    for pre in ("smollm", "gpt-2"):
        expected = ["(", "a", "'", "S", ")", "\n"]
        assert words(build(pre, tokens=tokens, token_type=types, merges=merges), "(a'S)\n") == expected


def test_only_llama_takes_a_whole_word_without_merges() -> None:
    tokens, types, _ = vocabulary_of_words(["hello"])
    assert words(build("llama-bpe", tokens=tokens, token_type=types, merges=[]), "hello") == ["hello"]
    assert words(build("qwen2", tokens=tokens, token_type=types, merges=[]), "hello") == list("hello")


@pytest.mark.parametrize(
    ("pre", "whole"), [("llama3", True), ("tekken", True), ("smaug-bpe", False), ("qwen35", False)]
)
def test_which_take_a_whole_word_without_merges(pre: str, whole: bool) -> None:
    tokens, types, _ = vocabulary_of_words(["hello"])
    tokenizer = build(pre, tokens=tokens, token_type=types, merges=[])
    assert (words(tokenizer, "hello") == ["hello"]) == whole


def test_control_tokens_are_text_unless_asked_for(tiny: Tokenizer) -> None:
    assert tiny.encode("a<|im_end|>b", special=True) == [*tiny.encode("a"), 2, *tiny.encode("b")]
    plain = tiny.encode("a<|im_end|>b")
    assert not any(tiny.is_special(id) for id in plain)
    assert tiny.decode(plain) == "a<|im_end|>b"


def test_a_whole_word_that_spells_a_control_token_stays_text() -> None:
    """Llama 3 takes whole words, and "stop" is one."""
    tokens, types, _ = vocabulary_of_words(["stop"])
    types[-1] = 3
    tokenizer = build("llama-bpe", tokens=tokens, token_type=types, merges=[])
    assert len(tokenizer.encode("stop")) == 4
    assert tokenizer.encode("stop", special=True) == [259]


def test_user_defined_tokens_are_always_found_and_the_longest_wins() -> None:
    tokens, types, _ = vocabulary_of_words(["<think>", "<think>>"])
    types[-2:] = 4
    tokenizer = build("qwen2", tokens=tokens, token_type=types, merges=[])
    assert tokenizer.encode("<think>") == [259]
    assert tokenizer.encode("<think>>") == [260]
    assert not tokenizer.is_special(259)
    assert tokenizer.token_bytes(259) == b"<think>"


def test_a_user_defined_token_that_ends_a_text_is_a_control_token() -> None:
    """Otherwise a message that spells it would hold it."""
    tokens, types, _ = vocabulary_of_words(["<|end|>", "<think>"])
    types[-2:] = 4
    tokenizer = build(tokens=tokens, token_type=types, merges=[], eos_token_id=259)
    assert tokenizer.control_id("<|end|>") == 259
    assert len(tokenizer.encode("<|end|>")) == 7
    assert tokenizer.encode("<think>") == [260]


def test_bos() -> None:
    assert (build().bos_id, build().add_bos) == (1, False)
    assert build(add_bos_token=True).add_bos
    assert build("llama-bpe").add_bos
    assert build("tekken").add_bos
    assert not build("smaug-bpe").add_bos
    assert not build("qwen35").add_bos
    assert not build("llama-bpe", add_bos_token=False).add_bos
    assert not build(add_bos_token=True, bos_token_id=None).add_bos


def test_lone_surrogates_do_not_stop_it(tiny: Tokenizer) -> None:
    assert tiny.decode(tiny.encode("a\udce9b")) == "a?b"


def test_ids_outside_the_vocabulary_are_named(tiny: Tokenizer) -> None:
    assert tiny.vocab_size == 320
    for id in (320, -1):
        with pytest.raises(EngineError, match=f"token id {id} is outside the vocabulary of 320"):
            tiny.token_bytes(id)


def test_a_model_without_tokenizer_has_none() -> None:
    assert Tokenizer.from_gguf({}) is None
    assert Tokenizer.from_gguf({"tokenizer.ggml.model": "none"}) is None


BAD = {
    "unknown kind": ({"model": "bert"}, "kind 'bert'; supported are"),
    "kind of no text": ({"model": np.zeros(2)}, "model is not text"),
    "no pre-tokenizer": ({"pre": None}, "names no pre-tokenizer; supported are gpt-2, smollm"),
    "unknown pre-tokenizer": ({"pre": "jais-2"}, "pre-tokenizer is 'jais-2'; supported are gpt-2, smollm"),
    "pre-tokenizer of another kind": ({"pre": 5}, "pre-tokenizer is 5"),
    "no tokens": ({"tokens": None}, "tokens is missing"),
    "empty": ({"tokens": [], "token_type": np.zeros(0, np.int32)}, "has no tokens"),
    "numbers for tokens": ({"tokens": np.zeros(320)}, "tokens is missing or not a list of strings"),
    "types": ({"token_type": np.ones(300, np.int32)}, "320 tokens but 300 token types"),
    "kinds of types": ({"token_type": ["a"] * 320}, "token_type is missing or not a list of numbers"),
    "no merges": ({"merges": None}, "merges is missing"),
    "one-token merge": ({"merges": ["ab"]}, "merge 'ab' is not two tokens"),
    "unknown token in a merge": ({"merges": ["zz zz"]}, "damaged: .*zz"),
    "unknown result of a merge": ({"merges": ["q z"]}, "damaged: .*qz"),
    "eos": ({"eos_token_id": 320}, "eos_token_id is 320, outside its vocabulary of 320"),
    "add_bos": ({"add_bos_token": 2}, "add_bos_token is neither true nor false"),
    "bos": ({"bos_token_id": -1}, "bos_token_id is -1"),
}


@pytest.mark.parametrize(("changes", "message"), BAD.values(), ids=BAD)
def test_malformed_metadata_is_refused_in_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        build(**({"pre": "smollm"} | changes))
    assert "\n" not in str(caught.value)


def sentencepiece(**changes: Any) -> Tokenizer:
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(**changes))
    assert tokenizer is not None
    return tokenizer


def test_sentencepiece_takes_llamas_ids_where_the_file_states_none() -> None:
    tokenizer = sentencepiece()
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (1, 2, True)
    tokenizer = sentencepiece(bos_token_id=793, eos_token_id=790, add_bos_token=False)
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.add_bos) == (793, 790, False)


def test_sentencepiece_makes_no_control_token_of_a_text() -> None:
    tokenizer = sentencepiece(space_prefix=False)
    for token in ("<s>", "</s>", "<unk>", "<start>", "<end>"):
        assert not any(map(tokenizer.is_special, tokenizer.encode(f"{token} x{token}")))
    assert tokenizer.encode("<start>x<end>", special=True) == [789, *tokenizer.encode("x"), 790]


def test_sentencepiece_puts_its_space_after_every_token_that_is_no_text() -> None:
    tokenizer = sentencepiece()
    x = tokenizer.encode("x")
    assert tokenizer.token_text(x[0]) == "\u2581x"
    assert tokenizer.encode("x<start>x<image>x", special=True) == [*x, 789, *x, 791, *x]


def test_a_vocabulary_without_bytes_has_an_unknown_token() -> None:
    content = sentencepiece_metadata(space_prefix=False)
    types = content["tokenizer.ggml.token_type"].copy()
    types[types == 6] = 5
    tokenizer = sentencepiece(space_prefix=False, token_type=types)
    (id,) = tokenizer.encode("\u4e8c")
    assert id == 0
    assert tokenizer.is_special(id)


def numbers(name: str, **at: int) -> Any:
    values = sentencepiece_metadata()[f"tokenizer.ggml.{name}"].copy()
    for place, value in at.items():
        values[int(place.removeprefix("_"))] = value
    return values


BAD_SENTENCEPIECE = {
    "no scores": ({"scores": None}, "scores is missing or not a list of numbers"),
    "no types": ({"token_type": None}, "token_type is missing or not a list of numbers"),
    "fewer scores": ({"scores": np.zeros(5, np.float32)}, "800 tokens but 5 scores"),
    "same token twice": ({"tokens": ["a"] * 800}, "tokenizer is damaged: .*a is already defined"),
    "a byte missing": ({"token_type": numbers("token_type", _7=1)}, "it has 255 byte tokens, not 256"),
    "a byte that is none": ({"token_type": numbers("token_type", _300=6, _7=1)}, "tokenizer is damaged"),
    "empty token": ({"tokens": ["", *["a"] * 799]}, "tokenizer is damaged: .*empty"),
    "unknown": ({"unknown_token_id": 800}, "unknown_token_id is 800, outside its vocabulary of 800"),
}


@pytest.mark.parametrize(("changes", "message"), BAD_SENTENCEPIECE.values(), ids=BAD_SENTENCEPIECE)
def test_a_malformed_sentencepiece_model_is_refused_in_one_line(
    changes: dict[str, Any], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        sentencepiece(**changes)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_smollm2_gives_the_reference_ids(smollm2: Tokenizer) -> None:
    for prompt in REFERENCE["prompts"]:
        assert smollm2.encode(prompt["text"], special=True) == prompt["ids"]
        assert smollm2.decode(prompt["greedy40_ids"]) == prompt["greedy40_text"]
    assert (smollm2.bos_id, smollm2.add_bos) == (1, False)
    assert smollm2.encode("<|im_end|>") != [2]
