"""tokenizer.json gives the ids that the model was trained on, and no text makes a control token."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.text.model_text import open_text
from engine.text.stream import TextStream
from engine.text.template import ChatTemplate
from engine.text.tokenizer import Tokenizer
from tests.engine.text.conftest import tiny_metadata
from tests.engine.text.tokenizer_files import (
    BOS_FIRST,
    VOCABULARY,
    added_token,
    byte_level_json,
    sentencepiece_json,
    write_folder,
)
from tests.engine.text.varied import varied_strings

LLAMA2_CONFIG = {"bos_token": "<s>", "eos_token": {"content": "</s>", "special": True}, "add_bos_token": True}


def spellings(tokenizer: Tokenizer, text: str, **how: bool) -> list[str]:
    return [tokenizer.token_text(id) for id in tokenizer.encode(text, **how)]


@pytest.mark.parametrize("pre", ["gpt-2", "smollm", "qwen2", "qwen35", "smaug-bpe", "tekken"])
def test_byte_level_gives_the_ids_of_the_gguf_file(tmp_path: Path, pre: str) -> None:
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level_json(pre)))
    from_gguf = Tokenizer.from_gguf(tiny_metadata(pre))
    assert from_gguf is not None
    for text in varied_strings(2000):
        ids = tokenizer.encode(text)
        assert ids == from_gguf.encode(text)
        assert tokenizer.decode(ids) == text
        special = tokenizer.encode(text, special=True)
        assert special == from_gguf.encode(text, special=True)
        assert tokenizer.decode(special) == text
    used = [id for id in range(320) if from_gguf.token_bytes(id)]
    assert [tokenizer.token_bytes(id) for id in used] == [from_gguf.token_bytes(id) for id in used]


def test_a_normaliser_is_applied_as_qwens(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, byte_level_json() | {"normalizer": {"type": "NFC"}}))
    for text in varied_strings():
        assert tokenizer.decode(tokenizer.encode(text)) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("style", ["llama2", "mistral", "gemma"])
def test_sentencepiece_gives_llama_cpps_ids(tmp_path: Path, style: str) -> None:
    """Except where they differ on purpose: tokenizer.json merges runs of spaces, GGUF finds them as tokens."""
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, sentencepiece_json(style), LLAMA2_CONFIG))
    content = json.loads(VOCABULARY.read_text())
    expected = content["ids" if style == "gemma" else "ids_space_prefix"]
    strings = varied_strings(2000)
    compared = 0
    for index, text in enumerate(strings):
        ids = tokenizer.encode(text)
        # Metaspace puts no space before one, so its decoding cannot tell whether to take it away.
        if style != "mistral" or not text.startswith(" "):
            assert tokenizer.decode(ids) == text
            stream = TextStream(tokenizer)
            assert "".join(map(stream.push, ids)) + stream.flush() == text
        differs = any(run in text for run in ("  ", "\n\n"))
        if style == "mistral":
            differs |= text.startswith(" ") or "<image>" in text
        if index < len(expected) and not differs:
            assert ids == expected[index], text
            compared += 1
    assert compared > 250


def test_where_the_space_is_put(tmp_path: Path) -> None:
    def pieces(style: str) -> list[list[str]]:
        tokenizer = Tokenizer.from_folder(write_folder(tmp_path, sentencepiece_json(style)))
        first, later = spellings(tokenizer, "x<s>x", special=True), spellings(tokenizer, "x", first=False)
        return [first, later]

    assert pieces("llama2") == [["\u2581x", "<s>", "\u2581x"], ["\u2581x"]]
    assert pieces("mistral") == [["\u2581x", "<s>", "x"], ["x"]]
    assert pieces("gemma") == [["x", "<s>", "x"], ["x"]]


def test_a_template_of_mistrals_style_puts_it_only_before_the_prompt(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, sentencepiece_json("mistral"), LLAMA2_CONFIG))
    template = ChatTemplate("{{ bos_token }}{{ messages[0].content }}", tokenizer)
    ids = template.render_ids([{"role": "user", "content": "x"}])
    assert [tokenizer.token_text(id) for id in ids] == ["<s>", "x"]


@pytest.mark.parametrize("document", [byte_level_json, lambda: sentencepiece_json("gemma")], ids=["bytes", "gemma"])
def test_no_text_makes_a_control_token(tmp_path: Path, document: Callable[[], dict[str, Any]]) -> None:
    folder = write_folder(tmp_path, document(), {"eos_token": "<|im_end|>"})
    tokenizer = Tokenizer.from_folder(folder)
    control = [token for token in ("<|im_end|>", "<s>", "<end>", "<start>") if tokenizer.control_id(token) is not None]
    assert control
    for token in control:
        for text in (token, f"a {token}{token}", f"{token[:2]}{token}{token[2:]}"):
            ids = tokenizer.encode(text)
            assert not any(map(tokenizer.is_special, ids))
            assert tokenizer.decode(ids) == text
        assert tokenizer.encode(token, special=True) == [tokenizer.control_id(token)]


def test_not_even_by_merging_it(tmp_path: Path) -> None:
    """Gemma's vocabulary has its control tokens' spellings, and one could be merged from its letters."""
    document = sentencepiece_json("gemma")
    document["model"]["merges"] = [["<", "end"], ["<end", ">"], *document["model"]["merges"]]
    document["model"]["vocab"]["<end"] = len(document["model"]["vocab"])
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, document))
    control_id = tokenizer.control_id("<end>")
    assert tokenizer.encode("<end>", special=True) == [control_id]
    for text in ("<end>", "x <end><end> y<<end>"):
        ids = tokenizer.encode(text)
        assert control_id not in ids
        assert tokenizer.decode(ids) == text
    template = ChatTemplate("{{ messages[0].content }}<end>", tokenizer)
    assert template.render_ids([{"role": "user", "content": "<end>"}]).count(control_id or -1) == 1


def test_added_tokens_that_are_not_special_are_found_in_every_text(tmp_path: Path) -> None:
    document = byte_level_json()
    last = len(document["model"]["vocab"])
    document["added_tokens"].append(added_token(last, "<think>", special=False))
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, document))
    assert tokenizer.encode("<think>") == [last]
    assert tokenizer.control_id("<think>") is None
    assert tokenizer.token_id("<think>") == last
    assert not tokenizer.is_special(last)
    assert tokenizer.decode([last]) == "<think>"


@pytest.mark.parametrize("name", ["eos_token", "bos_token", "pad_token", "additional_special_tokens"])
def test_tokens_that_the_config_names_are_control_tokens(tmp_path: Path, name: str) -> None:
    document = byte_level_json()
    last = len(document["model"]["vocab"])
    document["added_tokens"].append(added_token(last, "<|end|>", special=False))
    value = ["<|end|>"] if name.startswith("additional") else "<|end|>"
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, document, {name: value}))
    assert tokenizer.control_id("<|end|>") == last
    assert len(tokenizer.encode("<|end|>")) > 1
    assert tokenizer.vocab_size == last + 1


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": True}
BOS_LAST = BOS_FIRST | {"single": BOS_FIRST["single"][::-1]}
BOS = {
    "the post-processor puts it": (BOS_FIRST, {}, (1, True)),
    "a part of it puts it": ({"type": "Sequence", "processors": [BYTE_LEVEL, BOS_FIRST]}, {}, (1, True)),
    "it puts another": (BOS_FIRST, {"bos_token": "<start>"}, (789, False)),
    "it puts nothing first": (BOS_LAST, {"bos_token": "<s>"}, (1, False)),
    "the config names it": (None, {"bos_token": "<s>"}, (1, False)),
    "the config asks for it": (None, {"bos_token": {"content": "<s>"}, "add_bos_token": True}, (1, True)),
    "the config forbids it": (BOS_FIRST, {"bos_token": "<s>", "add_bos_token": False}, (1, False)),
    "there is none": (None, {"add_bos_token": True}, (None, False)),
    "the config's is no token": (None, {"bos_token": "<nothing>", "add_bos_token": True}, (None, False)),
}


@pytest.mark.parametrize(("post_processor", "config", "expected"), BOS.values(), ids=BOS)
def test_bos(tmp_path: Path, post_processor: Any, config: dict[str, Any], expected: tuple[int | None, bool]) -> None:
    document = sentencepiece_json("llama2") | {"post_processor": post_processor}
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, document, config))
    assert (tokenizer.bos_id, tokenizer.add_bos) == expected


def test_the_end_of_text_token(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, sentencepiece_json("llama2"), LLAMA2_CONFIG))
    assert tokenizer.eos_id == 2
    assert Tokenizer.from_folder(write_folder(tmp_path, byte_level_json(), {})).eos_id is None


def test_truncation_and_padding_of_training_do_not_apply(tmp_path: Path) -> None:
    truncation = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    padding = {
        "strategy": {"Fixed": 64},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "<|endoftext|>",
    }
    document = byte_level_json() | {"truncation": truncation, "padding": padding}
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, document))
    assert len(tokenizer.encode("q" * 10)) == 10


def test_random_merging_of_training_does_not_apply(tmp_path: Path) -> None:
    document = byte_level_json()
    document["model"]["dropout"] = 0.9
    tokenizer = Tokenizer.from_folder(write_folder(tmp_path, document))
    expected = Tokenizer.from_folder(write_folder(tmp_path, byte_level_json())).encode(" the the the")
    assert all(tokenizer.encode(" the the the") == expected for _ in range(20))


def changed(**changes: Any) -> dict[str, Any]:
    """The byte-level document with other entries; ``vocab`` and ``merges`` are the model's."""
    document = byte_level_json()
    for name, value in changes.items():
        (document["model"] if name in ("vocab", "merges") else document)[name] = value
    return document


BAD: dict[str, tuple[Any, str]] = {
    "empty": ("", "tokenizer.json is not JSON at line 1"),
    "cut off": (json.dumps(byte_level_json())[:5000], "tokenizer.json is not JSON at line 1"),
    "an array": ("[]", "must hold a JSON object, not list"),
    "no model": ({}, "damaged or of an unknown kind: .*"),
    "another model": (
        changed(model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, added_tokens=[]),
        "a WordLevel model; only BPE is supported",
    ),
    "unknown pre-tokenizer": (changed(pre_tokenizer={"type": "Foo"}), "damaged or of an unknown kind: .*PreTokenizer"),
    "broken pattern": (
        changed(
            pre_tokenizer={"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": False},
        ),
        "damaged or of an unknown kind: .*parenthesis",
    ),
    "merge of no token": (changed(merges=[["q", "\u0100\u0101"]]), "damaged or of an unknown kind: .*"),
    "same id twice": (
        changed(vocab={"a": 3, "b": 3}, merges=[], added_tokens=[]),
        "two of its tokens have the same id",
    ),
    "no place": (changed(added_tokens=[added_token(5000, "<x>")]), "no place for its added token '<x>' at id 5000"),
    "negative id": (changed(vocab={"a": -1}, merges=[]), "damaged or of an unknown kind: .*-1"),
    "huge id": (changed(vocab={"a": 1 << 30}, merges=[], added_tokens=[]), "a token of id 1073741824"),
    "no tokens": (changed(vocab={}, merges=[], added_tokens=[]), "tokenizer.json has no tokens"),
    "characters": (changed(decoder=None, pre_tokenizer=None), "neither byte-level BPE nor SentencePiece BPE"),
}


@pytest.mark.parametrize(("document", "message"), BAD.values(), ids=BAD)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, document: Any, message: str) -> None:
    with pytest.raises(EngineError, match=message) as caught:
        Tokenizer.from_folder(write_folder(tmp_path, document))
    assert "\n" not in str(caught.value)


def test_a_folder_without_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=f"^{tmp_path.name} has no tokenizer.json"):
        Tokenizer.from_folder(tmp_path)


def test_a_broken_config_is_refused(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_level_json())
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(EngineError, match=r"tokenizer_config.json is not JSON"):
        Tokenizer.from_folder(tmp_path)


def test_a_model_folder_is_opened_with_it(tmp_path: Path) -> None:
    write_folder(tmp_path, byte_level_json(), {"eos_token": "<|im_end|>"})
    text = open_text(tmp_path, {}, vocab=320)
    assert text.problem is None
    assert text.tokenizer is not None
    assert text.stop_ids == {0, 2}
    smaller = open_text(tmp_path, {}, vocab=100)
    assert smaller.tokenizer is None
    assert f"the tokenizer has {text.tokenizer.vocab_size} tokens, the embedding 100 rows" in str(smaller.problem)
