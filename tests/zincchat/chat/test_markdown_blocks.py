"""Closed blocks are cut only where Markdown cannot change its mind."""

from __future__ import annotations

from zincchat.chat.markdown_blocks import BlockSplitter


def closed(text: str) -> tuple[str, str]:
    """What has been closed and what is left after feeding ``text`` a character at a time."""
    splitter = BlockSplitter()
    taken = ""
    for character in text:
        splitter.feed(character)
        taken += splitter.take_closed()
    assert taken + splitter.tail == text
    return taken, splitter.tail


def test_a_paragraph_closes_at_its_blank_line() -> None:
    assert closed("one\ntwo\n") == ("", "one\ntwo\n")
    assert closed("one\ntwo\n\nthr") == ("one\ntwo\n\n", "thr")


def test_a_fence_closes_at_its_own_end_only() -> None:
    assert closed("```c\na\n\nb\n") == ("", "```c\na\n\nb\n")
    assert closed("````\n```\n\n") == ("", "````\n```\n\n")
    assert closed("```c\na\n\nb\n```\nafter") == ("```c\na\n\nb\n```\n", "after")
    assert closed("~~~\n```\n\n~~~\nafter") == ("~~~\n```\n\n~~~\n", "after")


def test_the_rest_is_handed_out_once() -> None:
    splitter = BlockSplitter()
    splitter.feed("a\n\nb")
    assert splitter.take_closed() == "a\n\n"
    assert splitter.take_rest() == "b"
    assert splitter.take_rest() == splitter.tail == ""


def test_references_and_tables_need_a_whole_parse() -> None:
    for text, needed in (
        ("a [link][1]\n\n[1]: https://example.org\n", True),
        ("| a | b |\n| --- | :-: |\n| 1 | 2 |\n", True),
        ("a | b\n--- | ---\n", True),
        ("---\n\n- item\n\n[plain] text: x\n", False),
    ):
        splitter = BlockSplitter()
        splitter.feed(text)
        assert splitter.needs_whole_parse is needed, text
