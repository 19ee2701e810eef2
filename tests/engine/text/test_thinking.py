"""Thoughts come apart from the answer wherever the text is cut, and nothing but the tags is lost."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from engine.text.reply_text import ReplyText
from engine.text.thinking import ThinkSplitter, ThinkTags, find_tags, split_thoughts
from engine.text.tokenizer import Tokenizer
from tests.engine.text.conftest import tokenizer_with

TAGS = ThinkTags("<think>", "</think>")
CONTROL, USER_DEFINED = 3, 4

# (what comes, is the block open already, the answer, the thoughts)
REPLIES: dict[str, tuple[str, bool, str, str]] = {
    "block": ("<think>\nhm\n</think>\n\nYes.", False, "\n\nYes.", "\nhm\n"),
    "opened by the prompt": ("hm, I see\n</think>\n\nYes.", True, "\n\nYes.", "hm, I see\n"),
    "no tag": ("Yes, a < b and </b>.", False, "Yes, a < b and </b>.", ""),
    "nothing": ("", False, "", ""),
    "empty block": ("<think>\n\n</think>\n\nYes.", False, "\n\nYes.", "\n\n"),
    "unclosed": ("<think>hm, and then", False, "", "hm, and then"),
    "unclosed in the closing tag": ("<think>hm</thin", False, "", "hm</thin"),
    "unclosed in the opening tag": ("<thin", False, "<thin", ""),
    "after white space": ("\n <think>hm</think>Yes", False, "\n Yes", "hm"),
    "nested-looking": ("<think>a <think> b </think> c </think> d", False, " c </think> d", "a <think> b "),
    "tags in the answer": (
        "The tag <think> opens, </think> closes.",
        False,
        "The tag <think> opens, </think> closes.",
        "",
    ),
    "tags after the answer": ("Yes. <think>hm</think>", False, "Yes. <think>hm</think>", ""),
    "almost tags": ("<think>a </thin k> b </</think>c", False, "c", "a </thin k> b </"),
    "almost opened": ("<<think>hm</think>", False, "<<think>hm</think>", ""),
    "closing tag alone": ("hm</think>Yes", False, "hm</think>Yes", ""),
    "two blocks": ("<think>a</think>\n<think>b</think>c", False, "\nc", "ab"),
    "other letters": ("<think>é<🙂</think><é", False, "<é", "é<🙂"),
}


def split(pieces: list[str], inside: bool) -> tuple[str, str]:
    splitter = ThinkSplitter(TAGS, inside)
    halves = [splitter.push(piece) for piece in pieces] + [splitter.flush()]
    assert not splitter.pending
    text, thought = zip(*halves, strict=True)
    return "".join(text), "".join(thought)


@pytest.mark.parametrize(("reply", "inside", "text", "thought"), REPLIES.values(), ids=REPLIES)
def test_wherever_the_text_is_cut(reply: str, inside: bool, text: str, thought: str) -> None:
    assert split([reply], inside) == (text, thought)
    assert split(list(reply), inside) == (text, thought)
    for first, second in itertools.combinations(range(len(reply) + 1), 2):
        assert split([reply[:first], reply[first:second], reply[second:]], inside) == (text, thought)


def test_no_character_is_lost_or_made_up() -> None:
    rng = random.Random(5)
    for _ in range(2000):
        pieces = [
            rng.choice(("<", "think", ">", "/", "</", "think>", "<think>", "</think>", "a", "\n")) for _ in range(9)
        ]
        inside = rng.random() < 0.5
        whole = "".join(pieces)
        text, thought = split(pieces, inside)
        assert split([whole], inside) == (text, thought)
        left_out = Counter(whole)
        left_out.subtract(text + thought)
        closed = left_out["/"]
        opened = left_out["<"] - closed
        assert +left_out == Counter("<think>" * opened + "</think>" * closed)
        assert inside + opened - closed in (0, 1)


def test_only_what_may_be_a_tag_is_held_back() -> None:
    splitter = ThinkSplitter(TAGS)
    assert splitter.push("<th") == ("", "") and splitter.pending
    assert splitter.push("ink>hm </") == ("", "hm ") and splitter.thinking and splitter.pending
    assert splitter.push("think") == ("", "")
    assert splitter.push("> a <") == (" a <", "") and not splitter.thinking and not splitter.pending
    assert splitter.push("think>") == ("think>", "")


def test_a_whole_reply_is_split_alike() -> None:
    for reply, inside, text, thought in REPLIES.values():
        if not inside:
            assert split_thoughts(reply, TAGS) == (text, thought)


def test_which_models_think(tiny: Tokenizer) -> None:
    assert find_tags(tiny, None) is None
    assert find_tags(tiny, "{{ messages[0].content }}") is None
    assert find_tags(tiny, "{{ messages[0].content.split('</think>')[-1] }}") == TAGS
    assert find_tags(tiny, "[THINK]x[/THINK]") == ThinkTags("[THINK]", "[/THINK]")
    assert find_tags(tokenizer_with(("<think>", USER_DEFINED), ("</think>", USER_DEFINED)), None) == TAGS
    assert find_tags(tokenizer_with(("<think>", USER_DEFINED)), None) is None
    control = tokenizer_with(("[THINK]", CONTROL), ("[/THINK]", CONTROL))
    assert find_tags(control, None) == ThinkTags("[THINK]", "[/THINK]", 320, 321)


KINDS = {
    "text": (),
    "added": (("<think>", USER_DEFINED), ("</think>", USER_DEFINED)),
    "control": (("<think>", CONTROL), ("</think>", CONTROL)),
}


@pytest.fixture(params=KINDS.values(), ids=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return tokenizer_with(*request.param)


def read(tokenizer: Tokenizer, prompt: str, reply: str) -> tuple[str, str, str]:
    """The answer, the thoughts, and for each token whether it is of a block."""
    tags = find_tags(tokenizer, "</think>")
    reading = ReplyText(tokenizer, tags, tokenizer.encode(prompt, special=True))
    pieces = [reading.push(id) for id in tokenizer.encode(reply, special=True)]
    last = reading.flush()
    assert not reading.pending
    text, thought = ("".join(parts) for parts in zip(*[(p.text, p.thought) for p in [*pieces, last]], strict=True))
    return text, thought, "".join("t" if piece.thinking else "a" for piece in pieces)


def test_every_kind_of_tag(tokenizer: Tokenizer) -> None:
    text, thought, kinds = read(tokenizer, "user: go", "<think>\nso 🙂\n</think>\n\nYes")
    assert (text, thought) == ("\n\nYes", "\nso 🙂\n")
    after = len(tokenizer.encode("\n\nYes"))
    assert kinds.endswith("t" + "a" * after)
    assert kinds.lstrip("a") == kinds[kinds.index("t") :] and kinds.count("t") >= len(tokenizer.encode("\nso 🙂\n"))


def test_a_prompt_that_opens_the_block_gives_the_same_thoughts(tokenizer: Tokenizer) -> None:
    assert read(tokenizer, "user: go <think>\n", "so\n</think>\n\nYes")[:2] == ("\n\nYes", "\nso\n")
    assert read(tokenizer, "<think>", "so</think>Yes")[:2] == ("Yes", "so")


@pytest.mark.parametrize("prompt", ["what does <think> do?\n", "<think>\n\n</think>\n\n", "", "<think>\nso"])
def test_other_prompts_leave_it_closed(tokenizer: Tokenizer, prompt: str) -> None:
    assert read(tokenizer, prompt, "Yes")[:2] == ("Yes", "")


def test_an_unfinished_character_or_tag_comes_out_at_the_end(tokenizer: Tokenizer) -> None:
    assert read(tokenizer, "<think>", "so </thi")[:2] == ("", "so </thi")
    tags = find_tags(tokenizer, "</think>")
    reading = ReplyText(tokenizer, tags, tokenizer.encode("<think>", special=True))
    for id in tokenizer.encode("a🙂")[:-1]:
        piece = reading.push(id)
    assert reading.pending and (piece.text, piece.thought) == ("", "")
    assert reading.flush() == ("", "\ufffd", True)


def test_a_control_token_opens_a_block_anywhere_and_a_spelling_does_not() -> None:
    tokenizer = tokenizer_with(*KINDS["control"])
    assert read(tokenizer, "", "Yes. <think>no?</think> Yes.")[:2] == ("Yes.  Yes.", "no?")
    reading = ReplyText(tokenizer, find_tags(tokenizer, None), [])
    pieces = [reading.push(id) for id in tokenizer.encode("Say <think>!")]
    assert "".join(piece.text for piece in pieces) == "Say <think>!"


def test_without_tags_all_is_answer(tiny: Tokenizer) -> None:
    reading = ReplyText(tiny, None, tiny.encode("<think>"))
    pieces = [reading.push(id) for id in tiny.encode("<think>a</think>b")]
    assert "".join(piece.text for piece in pieces) == "<think>a</think>b"
    assert not any(piece.thought or piece.thinking for piece in pieces)
