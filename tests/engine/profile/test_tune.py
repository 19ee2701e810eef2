"""Which divisions of rows are tried, and which are chosen, by made-up times of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType

from engine.profile import tune as measurement
from engine.profile.row_trials import Changes, Workload
from engine.profile.tune import Limits
from engine.program.row_choices import Choice, RowDevice, divisions, is_possible, lane_choices, usual
from engine.program.tuning import UNTUNED, Matrix, RowTuning
from engine.progress import Bar, Progress, no_progress

T = GGMLQuantizationType
DEVICE = RowDevice(32, 1024, 48 << 10)
QKV = Matrix("qkv_groups", T.Q4_0, 12288, 4096)
OUTPUT = Matrix("matvec_groups", T.Q4_0, 4096, 4096)
GATE_UP = Matrix("gate_up_groups", T.Q4_0, 11008, 4096)
DOWN = Matrix("matvec_groups", T.Q4_0, 4096, 11008)
HEAD = Matrix("head_groups", T.Q6_K, 32000, 4096)
LIMITS = Limits(60, 8.0)
USUAL_US = 1000.0
Cost = Callable[[Changes], float]  # of a token


def work(matrix: Matrix) -> Workload:
    op: Any = SimpleNamespace(bytes_moved=1 << 20)
    return Workload(matrix, [op])


MODEL = [work(matrix) for matrix in (GATE_UP, QKV, DOWN, HEAD, OUTPUT)]


class Bench:
    """Times tokens by costs, the last of which stays, one a call; ``refused`` says what cannot be built."""

    def __init__(self, *costs: Cost, refused: Callable[[Choice], bool] = lambda choice: False) -> None:
        self.costs, self.refused = list(costs), refused
        self.asked = list[list[Changes]]()
        self.built = dict[Any, None]()
        self.lacking = set[Any]()

    def kernels(self, choices: Iterable[Choice]) -> int:
        return len({choice.kernel for choice in choices} - self.built.keys() - usual_kernels())

    def build(self, choices: Iterable[Choice], seconds: float) -> None:
        assert seconds == LIMITS.build_s
        for choice in choices:
            if choice.kernel not in usual_kernels():
                self.built[choice.kernel] = None
            if self.refused(choice):
                self.lacking.add(choice.kernel)

    def token_us(self, tokens: Sequence[Changes]) -> list[float]:
        cost = self.costs[min(len(self.asked), len(self.costs) - 1)]
        self.asked.append(list(tokens))
        there = self.built.keys() | usual_kernels()
        assert all(choice.kernel in there for token in tokens for choice in token.values())
        return [
            inf if any(choice.kernel in self.lacking for choice in token.values()) else cost(token) for token in tokens
        ]


def usual_kernels() -> set[Any]:
    return {usual(one.matrix, DEVICE).kernel for one in MODEL}


def flat(_: Changes) -> float:
    return USUAL_US


def gaining(us: Callable[[Choice], float]) -> Cost:
    """A token that each of its choices makes faster by so much."""
    return lambda token: USUAL_US - sum(us(choice) for choice in token.values())


def tune(
    works: Sequence[Workload], device: RowDevice, bench: Bench, limits: Limits, progress: Progress = no_progress
) -> RowTuning:
    return measurement.tune(works, device, bench, limits, Bar(progress, "tuning"))


def tuned(*costs: Cost, works: Sequence[Workload] = MODEL) -> RowTuning:
    return tune(works, DEVICE, Bench(*costs), LIMITS)


def test_what_is_not_clearly_faster_is_left_as_usual() -> None:
    def only(us: float) -> Cost:
        return gaining(lambda choice: us if choice == choices[1] else 0.0)

    choices = divisions(DOWN, usual(DOWN, DEVICE).lanes, DEVICE)
    assert tuned(only(1.9)) == UNTUNED
    assert tuned(only(2.1)) == RowTuning({}, {DOWN: choices[1].division})


def test_lanes_and_divisions_that_are_best_are_found() -> None:
    wanted = {GATE_UP: (1, 16), QKV: (8, 16), OUTPUT: (2, 8)}  # rows and teams

    def gain(choice: Choice) -> float:
        rows, teams = choice.division.rows, choice.division.teams
        best_rows, best_teams = wanted.get(choice.matrix, (rows, teams))
        gained = 40.0 if choice.lanes == 32 and choice.matrix in wanted else 0.0
        return gained + 10.0 * (rows == best_rows and teams == best_teams)

    bench = Bench(gaining(lambda choice: gain(choice) - 10.0 * (choice.matrix not in wanted)))
    tuning = tune(MODEL, DEVICE, bench, LIMITS._replace(kernels=200))
    assert tuning.lanes == {(T.Q4_0, 4096): 32}
    for matrix, best in wanted.items():
        found = tuning.divisions.get(matrix) or usual(matrix, DEVICE, 32).division
        assert (found.rows, found.teams) == best
    assert tuning.divisions.keys() <= wanted.keys() and len(tuning.divisions) >= 2


def test_lanes_are_changed_for_all_matrices_that_share_them_and_judged_by_the_token() -> None:
    def gain(choice: Choice) -> float:
        return {QKV: 50.0, OUTPUT: 10.0, GATE_UP: -55.0}.get(choice.matrix, 0.0) if choice.lanes == 32 else 0.0

    bench = Bench(gaining(gain))
    assert tune(MODEL, DEVICE, bench, LIMITS).lanes == {(T.Q4_0, 4096): 32}
    assert tuned(gaining(lambda choice: gain(choice) - 10.0 * (choice.matrix == GATE_UP))).lanes == {}
    for token in (token for tokens in bench.asked for token in tokens):
        for matrix, choice in token.items():
            if choice.lanes != usual(matrix, DEVICE).lanes:
                group = [one.matrix for one in MODEL if one.matrix[1::2] == matrix[1::2]]
                assert {token[other].lanes for other in group} == {choice.lanes}


@pytest.mark.parametrize("second", [flat, gaining(lambda choice: -1.0), gaining(lambda choice: 1.9)])
def test_a_gain_that_the_second_trial_does_not_show_is_none(second: Cost) -> None:
    once = gaining(lambda choice: 100.0 if choice.lanes == 32 else 0.0)
    bench = Bench(once, second, flat)
    assert tune(MODEL, DEVICE, bench, LIMITS) == UNTUNED
    (_, *others), (before, best, *_) = bench.asked[:2]
    assert before == {} and best in others and {choice.lanes for choice in best.values()} == {32}


def test_the_best_of_the_second_trial_is_taken() -> None:
    """The first times many tokens, each few times: what hardly seems slower there may be the fastest."""
    _, one, two, three, *_ = divisions(GATE_UP, 128, DEVICE)

    def by_choice(us: dict[Choice, float]) -> Cost:
        return gaining(lambda choice: us.get(choice, -100.0))

    first, second = by_choice({one: 20.0, two: -2.0, three: -4.0}), by_choice({one: 10.0, two: 30.0, three: 90.0})
    bench = Bench(by_choice({}), first, second)
    assert tune([work(GATE_UP)], DEVICE, bench, LIMITS).divisions == {GATE_UP: two.division}
    assert [list(token.values()) for token in bench.asked[2]] == [[], [one], [two]]


def test_each_change_is_tried_on_top_of_what_was_found_before() -> None:
    def cost(token: Changes) -> float:
        changed = token.keys()
        return USUAL_US - 100.0 * (GATE_UP in changed) - 50.0 * (QKV in changed) + 200.0 * (QKV in changed) * (
            GATE_UP in changed
        ) - 30.0 * (DOWN in changed) * (GATE_UP in changed)  # fmt: skip

    bench = Bench(cost)
    assert tune(MODEL, DEVICE, bench, LIMITS._replace(kernels=200)).divisions.keys() == {GATE_UP, DOWN}
    assert tuned(lambda token: USUAL_US - 30.0 * (DOWN in token) * (OUTPUT in token)) == UNTUNED  # DOWN alone is none
    trials = [tokens for tokens in bench.asked if DOWN not in tokens[0] and any(DOWN in token for token in tokens)]
    divisions_of_down = trials[2:-2]  # behind lanes, twice, and before the finals
    assert [tokens[0].keys() for tokens in divisions_of_down] == [{GATE_UP}, {GATE_UP}]
    assert all({GATE_UP, DOWN} == token.keys() for tokens in divisions_of_down for token in tokens[1:])


def test_a_choice_that_cannot_be_built_is_not_taken() -> None:
    cost = gaining(lambda choice: {8: 40.0, 1: 20.0}.get(choice.division.rows, 0.0))
    assert tuned(cost).divisions[DOWN].rows == 8
    bench = Bench(cost, refused=lambda choice: choice.division.rows == 8)
    assert tune(MODEL, DEVICE, bench, LIMITS).divisions[DOWN].rows == 1
    assert bench.lacking
    nothing = Bench(cost, refused=lambda choice: choice.kernel not in usual_kernels())
    tuning = tune(MODEL, DEVICE, nothing, LIMITS)
    assert tuning.lanes == {}
    for matrix, division in tuning.divisions.items():
        assert Choice(matrix, usual(matrix, DEVICE).lanes, division).kernel in usual_kernels()


@pytest.mark.parametrize("allowed", [0, 3, 20, 30, 100])
@pytest.mark.parametrize("lanes_gain", [0.0, 50.0])
def test_kernels_are_as_many_as_allowed_and_those_of_the_most_bytes(allowed: int, lanes_gain: float) -> None:
    bench = Bench(gaining(lambda choice: lanes_gain if choice.lanes == 32 else 0.0))
    tune(MODEL, DEVICE, bench, LIMITS._replace(kernels=allowed))
    assert len(bench.built) <= allowed
    tried = {matrix for tokens in bench.asked for token in tokens for matrix, choice in token.items()
             if choice != usual(matrix, DEVICE, choice.lanes)}  # fmt: skip
    assert tried == {one.matrix for one in MODEL[: len(tried)]}
    assert (GATE_UP in tried) == (allowed >= 20) and (OUTPUT in tried) == (allowed == 100)


def test_all_stays_as_usual_where_the_whole_is_not_faster() -> None:
    """By drift, or by noise that each change had on its side."""
    gain = gaining(lambda choice: 10.0)
    bench = Bench(gain)
    assert tune(MODEL, DEVICE, bench, LIMITS) != UNTUNED
    usual_token, best = bench.asked[-1]
    assert usual_token == {} and len(best) > 1
    again = Bench(*[gain] * (len(bench.asked) - 2), flat)
    assert tune(MODEL, DEVICE, again, LIMITS) == UNTUNED and again.asked == bench.asked


@pytest.mark.parametrize("size", [8, 32, 64])
@pytest.mark.parametrize("matrix", [QKV, DOWN, GATE_UP, HEAD, Matrix("matvec_groups", T.F32, 7, 64)], ids=str)
def test_every_choice_is_a_possible_one(size: int, matrix: Matrix) -> None:
    device = RowDevice(size, 1024, 48 << 10)
    for team in lane_choices(matrix.type, matrix.cols, device):
        assert team % size == 0
        first, *others = divisions(matrix, team, device)
        assert first == usual(matrix, device, team)
        assert all(is_possible(choice, device) for choice in others)
        for _, _, (rows, teams, workgroups) in (first, *others):
            assert rows * teams * workgroups * -(-matrix.rows // (rows * teams * workgroups)) >= matrix.rows
            assert team * teams <= 1024


def test_usual_choices_are_those_of_an_empty_tuning() -> None:
    assert usual(QKV, DEVICE) == Choice(QKV, 128, usual(QKV, DEVICE).division)
    assert usual(QKV, DEVICE, 32).division != usual(QKV, DEVICE).division
    assert RowTuning() == UNTUNED


def test_the_bar_moves_with_each_trial_and_leaves_its_end_to_who_keeps_the_result() -> None:
    shown = list[int]()
    seen = list[int]()  # at each call

    def cost(token: Changes) -> float:
        seen.extend(shown[-1:] if len(seen) < len(bench.asked) else ())
        return USUAL_US - len(token)

    bench = Bench(cost)
    tune(MODEL, DEVICE, bench, LIMITS, lambda stage, done, total: shown.append(done))
    assert len(seen) == len(bench.asked) > 8 and seen == sorted(set(seen))
    assert shown[0] == 0 and shown == sorted(set(shown)) and max(shown) < Bar.PERCENT
