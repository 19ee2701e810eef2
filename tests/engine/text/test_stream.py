"""A reply's text appears as its tokens come, whole characters only."""

from __future__ import annotations

from engine.text.stream import TextStream
from engine.text.tokenizer import Tokenizer
from tests.engine.text.conftest import sentencepiece_metadata
from tests.engine.text.varied import varied_strings


def test_the_pieces_make_the_text_and_no_piece_is_broken(tiny: Tokenizer) -> None:
    for text in varied_strings():
        stream = TextStream(tiny)
        pieces = [stream.push(id) for id in tiny.encode(text)]
        assert all("\ufffd" not in piece for piece in pieces)
        assert "".join(pieces) == text
        assert stream.flush() == ""


def test_a_character_is_held_back_until_it_is_whole(tiny: Tokenizer) -> None:
    stream = TextStream(tiny)
    assert [stream.push(id) for id in tiny.encode("🙂")] == ["", "", "", "🙂"]


def test_what_never_became_whole_is_flushed(tiny: Tokenizer) -> None:
    stream = TextStream(tiny)
    ids = tiny.encode("🙂")
    assert [stream.push(id) for id in ids[:3]] == ["", "", ""]
    assert stream.flush() == "\ufffd"
    assert "".join(map(stream.push, ids)) == "🙂"


def test_an_invalid_byte_does_not_swallow_what_follows(tiny: Tokenizer) -> None:
    stream = TextStream(tiny)
    first, *_ = tiny.encode("🙂")
    (letter,) = tiny.encode("q")
    assert stream.push(first) + stream.push(letter) == "\ufffdq"


def test_special_tokens_give_no_text(tiny: Tokenizer) -> None:
    stream = TextStream(tiny)
    ids = tiny.encode("a<|im_end|>b", special=True)
    assert [stream.push(id) for id in ids] == ["a", "", "b"]


def sentencepiece(space_prefix: bool) -> Tokenizer:
    tokenizer = Tokenizer.from_gguf(sentencepiece_metadata(space_prefix))
    assert tokenizer is not None
    return tokenizer


def test_the_space_that_a_tokenizer_puts_before_a_text_is_not_shown() -> None:
    tokenizer = sentencepiece(space_prefix=True)
    ids = tokenizer.encode("start of")
    assert tokenizer.token_text(ids[0]).startswith("\u2581")
    stream = TextStream(tokenizer)
    assert [stream.push(id) for id in ids] == ["", "start", " ", "of"]
    assert stream.flush() == ""
    assert "".join(map(stream.push, ids)) == "start of"  # a new text


def test_nor_after_a_control_token() -> None:
    tokenizer = sentencepiece(space_prefix=True)
    stream = TextStream(tokenizer)
    assert "".join(map(stream.push, tokenizer.encode("of<end>of<image> of", special=True))) == "ofof<image> of"


def test_a_space_of_the_text_is_shown() -> None:
    for space_prefix in (False, True):
        tokenizer = sentencepiece(space_prefix)
        stream = TextStream(tokenizer)
        assert "".join(map(stream.push, tokenizer.encode(" of of"))) == " of of"


def test_a_character_of_byte_tokens_is_held_back_until_it_is_whole() -> None:
    tokenizer = sentencepiece(space_prefix=False)
    stream = TextStream(tokenizer)
    ids = tokenizer.encode("\u4e8c")
    assert [tokenizer.token_text(id) for id in ids] == ["<0xE4>", "<0xBA>", "<0x8C>"]
    assert [stream.push(id) for id in ids] == ["", "", "\u4e8c"]
    assert stream.push(ids[0]) == ""
    assert stream.pending
    assert stream.flush() == "\ufffd"
