"""Which divisions of rows are tried, and which are chosen, by made-up times."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType

from engine.profile.row_trials import Workload
from engine.profile.tune import Times, tune
from engine.program.row_choices import Choice, RowDevice, divisions, is_possible, lane_choices, usual
from engine.program.tuning import UNTUNED, Matrix, RowTuning

T = GGMLQuantizationType
DEVICE = RowDevice(32, 1024, 48 << 10)
QKV = Matrix("qkv_groups", T.Q4_0, 12288, 4096)
OUTPUT = Matrix("matvec_groups", T.Q4_0, 4096, 4096)
GATE_UP = Matrix("gate_up_groups", T.Q4_0, 11008, 4096)
DOWN = Matrix("matvec_groups", T.Q4_0, 4096, 11008)
HEAD = Matrix("head_groups", T.Q6_K, 32000, 4096)
Cost = Callable[[Choice], float]


def work(matrix: Matrix, layers: int = 32, bytes_moved: int = 1 << 20) -> Workload:
    op: Any = SimpleNamespace(bytes_moved=bytes_moved)
    return Workload(matrix, [op] * layers)


MODEL = [work(GATE_UP, 32, 50 << 20), work(QKV, 32, 28 << 20), work(DOWN, 32, 25 << 20), work(HEAD, 1, 100 << 20)]
MODEL.append(work(OUTPUT, 32, 9 << 20))


class Bench:
    """Times choices by ``cost``, and notes what it was asked for."""

    def __init__(self, *costs: Cost) -> None:
        self.costs, self.asked = list(costs), list[Sequence[Choice]]()

    def __call__(self, choices: Sequence[Choice]) -> Times:
        cost = self.costs[min(len(self.asked), len(self.costs) - 1)]
        self.asked.append(choices)
        return {choice: cost(choice) for choice in choices}


def flat(_: Choice) -> float:
    return 10.0


def test_what_is_not_clearly_faster_is_left_as_usual() -> None:
    def cost(choice: Choice) -> float:
        return 10.0 if choice == usual(choice.matrix, DEVICE) else 9.8

    assert tune(MODEL, DEVICE, Bench(cost), 60).tuning == UNTUNED


def test_lanes_and_division_that_are_best_are_found_within_the_kernels_allowed() -> None:
    best = {matrix: divisions(matrix, 32, DEVICE) for matrix in (GATE_UP, QKV, OUTPUT)}
    wanted = {GATE_UP: (1, 16), QKV: (8, 16), OUTPUT: (2, 8)}  # rows and teams; usual are 2, 4 and 2, and 16

    def cost(choice: Choice) -> float:
        slow = 8.0 if choice.lanes == 32 or choice.matrix in (HEAD, DOWN) else 10.0
        rows, invocations = choice.division.rows, choice.division.teams * choice.lanes
        best_rows, teams = wanted.get(choice.matrix, (rows, 16))
        return slow + abs(rows - best_rows) * 0.5 + (invocations != teams * 32) * 0.4

    bench = Bench(cost)
    tuning = tune(MODEL, DEVICE, bench, 60).tuning
    assert tuning.lanes == {(T.Q4_0, 4096): 32}
    for matrix, choices in best.items():
        found = tuning.divisions[matrix]
        assert Choice(matrix, 32, found) in choices
        assert (found.rows, found.teams) == wanted[matrix]
    kernels = {choice.kernel for choices in bench.asked for choice in choices}
    assert len(kernels) <= 60 + len(MODEL)  # the usual ones are there before
    assert len(bench.asked) == 2


def test_lanes_are_judged_by_all_matrices_that_share_them() -> None:
    def cost(choice: Choice) -> float:
        if choice.lanes != 32:
            return 10.0
        return {QKV: 5.0, OUTPUT: 9.0, GATE_UP: 15.5}.get(choice.matrix, 10.0)

    assert (T.Q4_0, 4096) in tune([work(QKV), work(OUTPUT)], DEVICE, Bench(cost), 60).tuning.lanes
    assert tune([work(QKV), work(OUTPUT), work(GATE_UP)], DEVICE, Bench(cost), 60).tuning.lanes == {}
    few_layers = [work(QKV), work(OUTPUT), work(GATE_UP, 8)]
    assert tune(few_layers, DEVICE, Bench(cost), 60).tuning.lanes == {(T.Q4_0, 4096): 32}


def test_a_gain_that_the_second_trial_does_not_show_is_none() -> None:
    def once(choice: Choice) -> float:
        return 5.0 if choice.lanes == 64 else 10.0

    bench = Bench(once, flat)
    assert tune(MODEL, DEVICE, bench, 60).tuning == UNTUNED
    assert any(choice.lanes == 64 for choice in bench.asked[1])


def test_a_choice_that_could_not_be_built_is_not_taken() -> None:
    def trial(choices: Sequence[Choice]) -> Times:
        return {choice: 10.0 - choice.division.rows for choice in choices if choice.division.rows < 8}

    tuning = tune(MODEL, DEVICE, trial, 60).tuning
    assert all(division.rows < 8 for division in tuning.divisions.values())
    assert tune(MODEL, DEVICE, lambda choices: {}, 60).tuning == UNTUNED


def test_matrices_that_matter_less_go_without_a_trial_where_kernels_are_few() -> None:
    bench = Bench(flat)
    tune(MODEL, DEVICE, bench, 3)
    asked = [choice for choices in bench.asked for choice in choices]
    tried = {choice.matrix for choice in asked if choice.kernel != usual(choice.matrix, DEVICE).kernel}
    assert GATE_UP in tried and OUTPUT not in tried


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
