"""A stage's bar: each step shows, none is taken back, and there is one end."""

from __future__ import annotations

import numpy as np
import pytest

from engine.progress import Bar


class Shown:
    """What a bar shows."""

    def __init__(self) -> None:
        self.done = list[int]()
        self.bar = Bar(self.show, "stage")

    def show(self, stage: str, done: int, total: int) -> None:
        assert (stage, total) == ("stage", 100)
        self.done.append(done)


def test_parts_take_their_shares() -> None:
    shown = Shown()
    shown.bar.part(0.25, 5)
    for _ in range(5):
        shown.bar.step()
    shown.bar.part(0.5, 2)
    shown.bar.step()
    shown.bar.part(0.25, 0)
    shown.bar.end()
    assert shown.done == [0, 5, 10, 15, 20, 25, 50, 75, 100]


@pytest.mark.parametrize("steps", [0, 1, 7, 1000])
def test_it_ends_once_whatever_is_stepped(steps: int) -> None:
    shown, random = Shown(), np.random.default_rng()
    shown.bar.step()  # before any part: nothing
    for share in (0.15, 0.1, 0.35, 0.35, 0.05):
        shown.bar.part(share, steps)
        for _ in range(random.integers(2 * steps + 1)):
            shown.bar.step()
    assert shown.done == sorted(set(shown.done)) and 95 <= shown.done[-1] < 100
    shown.bar.end()
    shown.bar.end()
    assert shown.done.count(100) == 1 and shown.done[-1] == 100
