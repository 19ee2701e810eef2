"""Kernels, bubbles and pieces from hand-made spans."""

from __future__ import annotations

import numpy as np
import pytest

from engine.profile.stamps import account, span_us
from tests.engine.weight_data import fresh_random

# name: spans in us, pieces, kernels, bubbles, pieces' times
CASES = {
    "one": ([(5, 9)], ["kv"], 4, 0, {"kv": 4}),
    "gap": ([(0, 2), (5, 6)], ["small", "head"], 3, 3, {"small": 2, "head": 1}),
    "touching": ([(0, 2), (2, 3)], ["small", "small"], 3, 0, {"small": 3}),
    "overlap counts once, for the first": ([(0, 4), (3, 6)], ["weights", "kv"], 6, 0, {"weights": 4, "kv": 2}),
    "nested counts for the outer": ([(0, 9), (2, 3), (4, 5)], ["weights", "kv", "kv"], 9, 0, {"weights": 9, "kv": 0}),
    "a gap is measured from the latest end": ([(0, 9), (1, 2), (11, 12)], ["small"] * 3, 10, 2, {"small": 10}),
    "out of program order": ([(6, 8), (0, 5)], ["head", "weights"], 7, 1, {"weights": 5, "head": 2}),
    "two at once": ([(3, 5), (3, 7), (8, 9)], ["kv", "small", "small"], 5, 1, {"kv": 2, "small": 3}),
    "before zero": ([(0, 1), (-4, -2)], ["kv", "kv"], 3, 2, {"kv": 3}),
    "an empty kernel": ([(0, 1), (3, 3), (4, 5)], ["kv", "small", "kv"], 2, 3, {"kv": 2, "small": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_account(name):
    spans, pieces, kernels, bubbles, by_piece = CASES[name]
    spans_ns = np.array(spans, np.float64) * 1e3
    found = account(spans_ns, pieces)
    assert found[:2] == (kernels, bubbles)
    assert found[2] == {"weights": 0, "kv": 0, "small": 0, "head": 0, **by_piece}
    assert kernels + bubbles == span_us(spans_ns)


def test_any_spans_add_up():
    rng = fresh_random()
    for count in (1, 2, 50, 400):
        start = rng.uniform(0, 1e6, count)
        spans_ns = np.stack((start, start + rng.exponential(2e3, count)), axis=1)
        kernels, bubbles, pieces = account(spans_ns, rng.choice(["weights", "kv", "small", "head"], count).tolist())
        assert kernels + bubbles == pytest.approx(span_us(spans_ns))
        assert sum(pieces.values()) == pytest.approx(kernels)
        ticks = np.zeros(1_010_000, bool)  # the same by counting microseconds... in tenths of them
        for first, last in spans_ns / 1e2:
            ticks[int(first) : int(last)] = True
        assert ticks.sum() / 10 == pytest.approx(kernels, abs=0.2 * count)
