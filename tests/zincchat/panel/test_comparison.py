"""An A/B: whose turn it is, which turns make pairs, and what the pairs say."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest

from engine import TokenTiming
from tests.zincchat.cli.fake_engine import timing
from zincchat.alternation import TURN_TOKENS, Alternation
from zincchat.panel.comparison import SETTLING_TOKENS, Comparison
from zincchat.panel.segment import Settings
from zincchat.panel.statistics import median_interval
from zincchat.panel.token_history import TokenHistory
from zincchat.widgets.figures import compared_lines

A, B, C = (Settings(mode, True, "needed") for mode in ("rerecord", "reuse", "pipelined"))


def token(settings: Settings, period_us: float, stamped: bool = False) -> TokenTiming:
    made = timing(1, settings.mode, settings.fusion, settings.barriers, stamped)
    return dataclasses.replace(made, period_us=period_us)


def turn(settings: Settings, period_us: float, tokens: int = TURN_TOKENS) -> list[TokenTiming]:
    """A turn whose first two tokens pay for the switch, with a stamped token among the others."""
    made = [token(settings, period_us) for _ in range(tokens)]
    made[:SETTLING_TOKENS] = [token(settings, 50 * period_us)] * min(SETTLING_TOKENS, tokens)
    if tokens > 5:
        made[4] = token(settings, 70 * period_us, stamped=True)
    return made


def compared(*turns: list[TokenTiming], end: bool = True) -> Comparison:
    comparison = Comparison(A, B)
    for each in itertools.chain(*turns):
        comparison.add(each)
    if end:
        comparison.interrupted()
    return comparison


def test_turns_are_a_b_b_a() -> None:
    alternation = Alternation(A, B)
    found = [alternation.next() for _ in range(5 * TURN_TOKENS)]
    assert [found[i * TURN_TOKENS] for i in range(5)] == [A, B, B, A, A]
    assert all(found[i] == found[i - i % TURN_TOKENS] for i in range(len(found)))


def test_a_pair_is_two_turns_next_to_each_other() -> None:
    """The computer slows down steadily: each turn is compared with its neighbour only, in either order."""
    comparison = compared(turn(A, 200), turn(B, 100), turn(B, 1000), turn(A, 2400), turn(A, 6600), turn(B, 3000))
    found = comparison.result()
    assert found is not None
    assert (found.words, found.pairs, found.interval) == ("rerecord → reuse", 3, None)
    assert found.ratio == pytest.approx(2.2)
    assert (found.a_us, found.b_us) == (2400, 1000)


def test_six_pairs_give_an_interval() -> None:
    turns = [turn(A, 200 + i) + turn(B, 100) for i in range(6)]
    assert compared(*turns[:5]).result().interval is None  # type: ignore[union-attr]
    assert compared(*turns).result().interval == (2.0, 2.05)  # type: ignore[union-attr]


def test_the_end_of_a_reply_separates_turns() -> None:
    comparison = compared(turn(A, 200))
    for each in turn(B, 100):
        comparison.add(each)
    comparison.interrupted()
    assert comparison.result() is None
    short = compared(turn(A, 200), turn(B, 100, SETTLING_TOKENS + 2))
    assert short.result() is None
    assert compared(turn(A, 200), turn(B, 100, SETTLING_TOKENS + 3)).result() is not None


def test_tokens_in_flight_at_a_switch_lengthen_a_turn_and_shorten_the_next() -> None:
    found = compared(turn(A, 200, TURN_TOKENS + 3), turn(B, 100, TURN_TOKENS - 3)).result()
    assert found is not None and (found.ratio, found.pairs) == (2.0, 1)


def test_the_history_shows_b_and_marks_both_sides() -> None:
    history = TokenHistory()
    history.begin_reply()
    for each in turn(A, 500) + turn(B, 300):
        history.add(1, each)
    history.begin_comparison(A, B)
    for each in turn(A, 200) + turn(B, 100) + turn(B, 100) + turn(A, 200):
        history.add(1, each)
    assert "".join(shown.side or "-" for shown in history.tokens) == "-" * 24 + "a" * 12 + "b" * 24 + "a" * 12
    assert history.current is not None and history.previous is not None
    # of b there was one switch (its turns follow each other), of a two
    assert (len(history.current.settled_us), len(history.previous.settled_us)) == (20, 18)
    assert set(history.previous.settled_us) == {200}
    assert (history.current.settings, history.previous.settings) == (B, A)
    assert max(history.current.token_us) == 5000 and len(history.current.token_us) == 22
    history.end_comparison()
    history.add(1, token(A, 200))  # it was on its way
    assert history.tokens[-1].side == "a"
    history.add(1, token(B, 100))
    assert history.tokens[-1].side == "" and len(history.current.token_us) == 23
    assert history.comparison is not None  # what it found stays on screen ...
    history.setting_changed()
    assert history.comparison is None  # ... until a setting changes
    history.add(1, token(C, 50))
    assert history.change() is not None and history.change().words == "reuse → pipelined"  # type: ignore[union-attr]


@pytest.mark.parametrize("n", [*range(1, 16), 40, 101])
def test_the_interval_of_a_median_covers_what_it_promises(n: int) -> None:
    """Over all ways in which n values can fall on either side of the true median."""
    values = [float(i) for i in range(n)]
    found = median_interval(values[::-1])
    if n < 6:
        assert found is None
        return
    assert found is not None

    def covered(low: float) -> float:
        """The part of all ways in which from ``low`` to its counterpart from the top holds the median."""
        return sum(math.comb(n, below) for below in range(n + 1) if low < below < n - low) / 2**n

    low, high = found
    assert high == n - 1 - low
    assert covered(low) >= 0.95 > covered(low + 1)


@pytest.mark.parametrize(
    ("a_us", "b_us", "pairs", "words"),
    [
        (200, 100, 1, ", ×2.00 faster, 1 pair"),
        (100, 150, 2, ", ×1.50 slower, 2 pairs"),
        (1000, 1002, 2, ", no change, 2 pairs"),
        (1002, 1000, 6, ", no change (1.00–1.00), 6 pairs"),
    ],
)
def test_the_words_of_a_result(a_us: float, b_us: float, pairs: int, words: str) -> None:
    lines = compared_lines(compared(*[turn(A, a_us) + turn(B, b_us)] * pairs))
    assert lines[-1][-1][0] == words


def test_a_change_is_judged_without_the_switch_and_from_eight_tokens_on() -> None:
    history = TokenHistory()
    for each in turn(A, 200, 40):
        history.add(1, each)
    ratios = []
    for each in [token(B, 9000), token(B, 700), *[token(B, 100)] * 10]:
        history.add(1, each)
        change = history.change()
        assert change is not None and change.before_us == 200
        ratios.append((change.after_us, change.after_n, change.ratio))
    assert ratios[:3] == [(None, 0, None), (None, 0, None), (100, 1, None)]
    assert ratios[8:10] == [(100, 7, None), (100, 8, 2.0)]


def test_an_ab_that_ends_before_its_first_pair_is_not_shown() -> None:
    history = TokenHistory()
    history.begin_comparison(A, B)
    for each in turn(A, 200):
        history.add(1, each)
    assert history.shown_comparison is not None
    history.end_comparison()
    assert history.shown_comparison is None
    history.add(1, token(A, 200))  # it was on its way
    history.add(1, token(B, 100))
    assert (history.tokens[-2].side, history.tokens[-1].side) == ("a", "")
    assert history.shown_comparison is None

    history.begin_comparison(A, B)
    for each in turn(A, 200) + turn(B, 100) + turn(B, 100):
        history.add(1, each)
    history.end_comparison()
    assert history.shown_comparison is not None
