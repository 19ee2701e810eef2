"""Timing ways to divide a matrix: what is timed, and what is left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from engine.errors import EngineError
from engine.profile import row_trials
from engine.profile.row_trials import Limits, RowTrials, Workload, workloads
from engine.program import matrix
from engine.program.op import Op
from engine.program.operands import Weight
from engine.program.row_choices import Choice, RowDevice, divisions, usual
from engine.program.tuning import Matrix
from engine.vulkan.pipelines import Kernels
from engine.weights.repack import repack
from tests.engine.gpu import Gpu
from tests.engine.weight_data import T, random_raw

ROWS, COLS, LAYERS = 40, 64, 3
MATRIX = Matrix("matvec_groups", T.Q4_0, ROWS, COLS)
LIMITS = Limits(build_s=60.0, run_s=0.0)


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    with Gpu(row_kernels=False) as device:
        yield device


@pytest.fixture(scope="module")
def weights(gpu: Gpu) -> list[Weight]:
    random, found = np.random.default_rng(0), []
    for layer in range(LAYERS):
        planes = repack(random_raw(random, T.Q4_0, ROWS, COLS), T.Q4_0, ROWS, COLS, "gpu")
        quants, scales = (gpu.array(plane, constant=True) for plane in planes)
        found.append(Weight(f"w{layer}", T.Q4_0, ROWS, COLS, quants, scales, quants.size + scales.size))
    return found


@pytest.fixture(scope="module")
def ops(gpu: Gpu, weights: list[Weight]) -> list[Op]:
    x, y = gpu.array(np.ones(COLS, np.float32)), gpu.poisoned(ROWS * 4)
    norm = Op("nothing", gpu.kernels.get("add"), (x, x), (1,), (1, 1, 1))
    found = [norm]
    for weight in weights:
        found += [matrix.matvec(gpu.kernels, weight, x, y), matrix.gate_up(gpu.kernels, weight, weight, x, y)]
    return found


@pytest.fixture
def choices(gpu: Gpu) -> list[Choice]:
    device = RowDevice(gpu.device.subgroup_size, gpu.device.most_invocations, gpu.device.shared_bytes)
    first, *others = divisions(MATRIX, usual(MATRIX, device).lanes, device)
    by_rows = {choice.division.rows: choice for choice in others}
    return [first, by_rows[2], by_rows[8]]


def test_a_programs_matrices_with_the_most_bytes_come_first(ops: list[Op], weights: list[Weight]) -> None:
    first, second = workloads(ops, weights)
    assert first.matrix == MATRIX._replace(kernel="gate_up_groups") and second.matrix == MATRIX
    assert len(first.ops) == len(second.ops) == LAYERS
    assert second.bytes == LAYERS * (weights[0].bytes + 4 * (ROWS + COLS))


def test_every_choice_is_timed_and_nothing_of_it_stays(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice]
) -> None:
    before, built = dict(gpu.kernels._kernels), []
    with RowTrials(gpu.kernels, workloads(ops, weights), LIMITS) as trials:
        times = trials.times_us(choices, lambda: built.append(1))
    assert set(times) == set(choices) and all(us > 0 for us in times.values())
    assert len(built) == 2  # the usual kernel is the program's own
    assert gpu.kernels._kernels == before


def test_what_is_not_built_in_time_is_left_out(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice]
) -> None:
    with RowTrials(gpu.kernels, workloads(ops, weights), LIMITS._replace(build_s=-1.0)) as trials:
        assert set(trials.times_us(choices)) == {choices[0]}
        assert trials.times_us(choices[1:]) == {}


def test_what_the_driver_refuses_is_left_out(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Kernels.get

    def refusing(self: Kernels, name: str, defines: Any = None, stamped: bool = False) -> Any:
        if defines["ROWS"] == 8:
            raise EngineError("out of registers")
        return get(self, name, defines, stamped)

    monkeypatch.setattr(Kernels, "get", refusing)
    with RowTrials(gpu.kernels, workloads(ops, weights), LIMITS) as trials:
        assert set(trials.times_us(choices)) == set(choices[:2])


def test_a_chain_ends_where_it_has_bytes_enough(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    work: Workload = workloads(ops, weights)[1]
    monkeypatch.setattr(row_trials, "_CHAIN_BYTES", 2 * work.ops[0].bytes_moved)
    recorded: list[int] = []
    record = row_trials.CommandBuffer.record_all
    monkeypatch.setattr(
        row_trials.CommandBuffer,
        "record_all",
        lambda self, ops, barriers: (recorded.append(sum(barriers)), record(self, ops, barriers))[1],
    )
    with RowTrials(gpu.kernels, [work], LIMITS) as trials:
        assert set(trials.times_us(choices[:1])) == {choices[0]}
    assert recorded == [2]  # of three layers, with a barrier before each
