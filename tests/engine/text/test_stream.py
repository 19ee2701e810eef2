"""A reply's text appears as its tokens come, whole characters only."""

from __future__ import annotations

from engine.text.stream import TextStream
from engine.text.tokenizer import Tokenizer
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
