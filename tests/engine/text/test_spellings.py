"""The longest spelling at the leftmost place is found, whatever the spellings are."""

from __future__ import annotations

import itertools
import random

from engine.text.spellings import any_of


def found(spellings: list[str], text: str) -> list[str]:
    pattern = any_of(spellings)
    assert pattern is not None
    return pattern.findall(text)


def test_none_of_no_spellings() -> None:
    assert any_of([]) is None


def test_the_longest_at_the_leftmost_place() -> None:
    assert found(["ab", "abc", "b", "bcde"], "abcde ab b") == ["abc", "ab", "b"]
    assert found(["<|a|>", "<|ab|>", "(.*)"], "<|ab|><|a|>(.*)x") == ["<|ab|>", "<|a|>", "(.*)"]


def test_spellings_longer_than_the_trie_is_deep() -> None:
    long = "x" * 100_000
    assert found(["xx", long, "x" * 70], long + "x" * 75) == [long, "x" * 70, "xx", "xx"]


def test_many_nested_ones() -> None:
    runs = [" " * count for count in range(2, 32)]
    assert [len(run) for run in found(runs, " " * 40 + "a" + " " * 3)] == [31, 9, 3]


def test_as_trying_each_in_turn() -> None:
    rng = random.Random(3)
    words = ["".join(word) for count in (1, 2, 3, 4) for word in itertools.product("ab|", repeat=count)]
    for _ in range(200):
        spellings = rng.sample(words, 12)
        text = "".join(rng.choice("ab|") for _ in range(40))
        expected, position = [], 0
        while position < len(text):
            here = [spelling for spelling in spellings if text.startswith(spelling, position)]
            if here:
                expected.append(max(here, key=len))
            position += max(map(len, here), default=1)
        assert found(spellings, text) == expected
