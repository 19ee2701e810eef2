"""Timing ways to divide a model's matrices: what is timed, what is left out, and what stays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest

from engine import FUSION_PASSES, Engine, EngineError
from engine.decode.flags import Recordable
from engine.decode.program import DecodeProgram, Settings
from engine.profile.row_trials import RowTrials, workloads
from engine.program import matrix
from engine.program.op import Op
from engine.program.operands import Weight
from engine.program.row_choices import Choice, RowDevice, divisions, lane_choices, usual
from engine.program.tuning import Matrix, RowTuning
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.pipelines import Kernels
from engine.weights.repack import repack
from tests.engine.gpu import Gpu
from tests.engine.tiny_runs import random_ids
from tests.engine.weight_data import T, random_raw

ROWS, COLS, LAYERS = 40, 64, 3
MATRIX = Matrix("matvec_groups", T.Q4_0, ROWS, COLS)
POSITION = 20


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
    found = [Op("first", gpu.kernels.get("add"), (x, x), (1,), (1, 1, 1))]
    for index, weight in enumerate(weights):
        add = index > 0  # of another build
        found += [
            matrix.matvec(gpu.kernels, weight, x, y, add=add),
            matrix.gate_up(gpu.kernels, weight, weight, x, y),
        ]
    return found


@pytest.fixture
def choices(gpu: Gpu) -> list[Choice]:
    first, *others = divisions(MATRIX, usual(MATRIX, limits(gpu.device)).lanes, limits(gpu.device))
    by_rows = {choice.division.rows: choice for choice in others}
    return [first, by_rows[2], by_rows[8]]


def limits(device: Device) -> RowDevice:
    return RowDevice(device.subgroup_size, device.most_invocations, device.shared_bytes)


def as_it_is(ops: Sequence[Op], barriers: Sequence[bool]) -> Recordable:
    return ops, barriers


def trials_of(gpu: Gpu, ops: list[Op], weights: list[Weight], **more: Any) -> RowTrials:
    def least_us(recordable: Sequence[Recordable], clocks: bool) -> list[float]:
        return [float(len(recordable) - index) for index in range(len(recordable))]

    program = DecodeProgram(ops, [index > 0 for index in range(len(ops))], len(ops) - 1)
    return RowTrials(gpu.kernels, program, workloads(ops, weights), as_it_is, least_us, **more)


def test_a_programs_matrices_with_the_most_bytes_come_first(ops: list[Op], weights: list[Weight]) -> None:
    first, second = workloads(ops, weights)
    assert first.matrix == MATRIX._replace(kernel="gate_up_groups") and second.matrix == MATRIX
    assert len(first.ops) == len(second.ops) == LAYERS
    assert second.bytes == LAYERS * (weights[0].bytes + 4 * (ROWS + COLS))


def test_a_weight_in_parts_is_as_many_matrices_as_have_other_rows(gpu: Gpu, weights: list[Weight]) -> None:
    w, x, y = weights[0], gpu.poisoned(COLS * 4), gpu.poisoned(ROWS * 4)
    quants = [w.quants.part(0, 16), w.quants.part(16, 16)]
    parts = tuple(
        Weight("part", T.Q4_0, rows, COLS, planes, w.scales, 32) for rows, planes in zip((16, 8), quants, strict=True)
    )
    whole = Weight("whole", T.Q4_0, 24, COLS, quants[0], w.scales, 64, parts=parts)
    found = workloads([matrix.matvec(gpu.kernels, part, x, y) for part in parts], [*weights, whole])
    assert [work.matrix.rows for work in found] == [16, 8]


def test_what_was_built_is_timed_and_nothing_of_it_stays(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice]
) -> None:
    before, built = dict(gpu.kernels._kernels), list[int]()
    with trials_of(gpu, ops, weights, built=lambda: built.append(1)) as trials:
        assert trials.kernels(choices) == 4  # of either build two: the usual ones are the program's own
        trials.build(choices, 60.0)
        assert len(built) == 4 and trials.kernels(choices) == 0
        trials.build(choices, 60.0)
        assert len(built) == 4
        assert trials.token_us([{MATRIX: choice} for choice in choices]) == [3.0, 2.0, 1.0]
        assert len(trials._kernels._kernels) == 4
    assert trials._kernels._kernels == {} and gpu.kernels._kernels == before


def test_what_is_built_goes_with_a_failure_too(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice]
) -> None:
    with pytest.raises(EngineError, match="lost"), trials_of(gpu, ops, weights) as trials:
        trials.build(choices, 60.0)
        raise EngineError("the device is lost")
    assert trials._kernels._kernels == {}


def test_no_token_is_timed_with_what_is_not_built_in_time(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice]
) -> None:
    with trials_of(gpu, ops, weights) as trials:
        trials.build(choices, -1.0)
        assert trials.token_us([{}, *({MATRIX: choice} for choice in choices)]) == [2.0, 1.0, inf, inf]


def test_no_token_is_timed_with_what_the_driver_refuses(
    gpu: Gpu, ops: list[Op], weights: list[Weight], choices: list[Choice], monkeypatch: pytest.MonkeyPatch
) -> None:
    get = Kernels.get

    def refusing(self: Kernels, name: str, defines: Any = None, stamped: bool = False) -> Any:
        if defines["ROWS"] == 8 and "ADD" in defines:
            raise EngineError("out of registers")
        return get(self, name, defines, stamped)

    monkeypatch.setattr(Kernels, "get", refusing)
    with trials_of(gpu, ops, weights) as trials:
        trials.build(choices, 60.0)
        assert trials.token_us([{MATRIX: choice} for choice in choices]) == [2.0, 1.0, inf]


def test_clocks_are_raised_where_the_device_stood_idle(
    gpu: Gpu, ops: list[Op], weights: list[Weight], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, raised = [100.0], list[bool]()
    monkeypatch.setattr("engine.profile.row_trials.perf_counter", lambda: now[0])
    with trials_of(gpu, ops, weights) as trials:
        monkeypatch.setattr(trials, "_least_us", lambda recordable, clocks: raised.append(clocks) or [1.0])
        for wait_s in (0.0, 0.1, 5.0, 0.1):
            now[0] += wait_s
            trials.token_us([{}])
    assert raised == [True, False, True, False]


class Token(NamedTuple):
    """What a token leaves."""

    id: int
    logits: npt.NDArray[np.float32]
    state: npt.NDArray[np.uint8]
    cache: list[npt.NDArray[np.uint8]]


def ran(opened: Engine, recordable: Recordable) -> Token:
    """Run it at POSITION."""
    runtime = opened._runtime
    memory, scratch = runtime.memory, runtime.instruments._scratch
    commands = CommandBuffer(runtime._device)
    commands.record_all(*recordable)
    for left in (runtime._slot.readback, scratch._logits):
        memory.write(left, np.full(left.size, 0xCB, np.uint8))
    memory.flush()
    with scratch.at(POSITION) as before:
        for each in (before, commands):
            each.submit()
            each.wait()
        found = Token(
            int(memory.read(runtime._slot.readback).view(np.uint32)[0]),
            memory.read(scratch._logits).view(np.float32).copy(),
            memory.read(scratch._state).copy(),
            [memory.read(item).copy() for layer in scratch._cache.attention for item in layer],
        )
    commands.close()
    return found


def same(one: Token, other: Token) -> bool:
    return one.id == other.id and all(
        np.array_equal(a, b)
        for a, b in zip((one.logits, one.state, *one.cache), (other.logits, other.state, *other.cache), strict=True)
    )


def described(recordable: Recordable) -> list[tuple[Any, ...]]:
    ops, barriers = recordable
    return [
        (op.kernel.name, op.kernel.defines, op.groups, op.push, barrier)
        for op, barrier in zip(ops, barriers, strict=True)
    ]


@pytest.fixture(scope="module")
def opened(one_layer_path: Path) -> Iterator[Engine]:
    with Engine.open(one_layer_path, context=64, row_kernels=False, fusion=FUSION_PASSES, tuning=False) as engine:
        engine.session().prefill(random_ids(POSITION))
        engine._runtime._stamp_thread.join()
        yield engine


@contextmanager
def divided(opened: Engine, weights: Sequence[Weight], tuning: RowTuning) -> Iterator[None]:
    """The engine's rows are divided so."""
    kernels = opened._runtime._kernels
    try:
        kernels.tuning = tuning
        forget_plans(weights)
        yield
    finally:
        kernels.tuning = None
        forget_plans(weights)


def forget_plans(weights: Sequence[Weight]) -> None:
    for weight in weights:
        weight.plans.clear()


@pytest.mark.parametrize("policy", ["flags", "needed"])
@pytest.mark.parametrize("lanes", ["usual lanes", "other lanes"])
def test_what_is_timed_is_what_is_recorded_by_such_a_tuning(
    opened: Engine, policy: str, lanes: str, random: np.random.Generator
) -> None:
    """Op by op, with its counts of arrivals and of the LM head's parts; and a token's bits do not change."""
    if policy in opened.refused_barriers:
        pytest.skip(opened.refused_barriers[policy])
    runtime, device = opened._runtime, limits(opened._runtime._device)
    builder, settings = runtime.builder, Settings("reuse", runtime.offered_passes, policy)
    weights = [item for node in builder.nodes() for item in node.args if isinstance(item, Weight)]
    weights += [stack.combined for stack in builder._stacks.values()]

    def record(ops: Sequence[Op], barriers: Sequence[bool]) -> Recordable:
        return runtime._resources.flags.recordable(ops, barriers, policy)

    program = builder.build(64, settings, runtime._slot)
    works = workloads(program.ops, weights)
    assert len(works) == 5  # qkv, output, gate and up, down, head
    changes, timed = dict[Matrix, Choice](), list[tuple[Recordable, Token]]()
    for each in works:
        team = lane_choices(each.matrix.type, each.matrix.cols, device)[0 if lanes == "usual lanes" else -1]
        first, *others = divisions(each.matrix, team, device)
        other_parts = [choice for choice in others if parts(choice) != parts(first)]
        changes[each.matrix] = other_parts[random.integers(len(other_parts))]
    print(changes)

    def least_us(recordable: Sequence[Recordable], clocks: bool) -> list[float]:
        timed.extend((each, ran(opened, each)) for each in recordable)
        return [1.0] * len(recordable)

    before = dict(runtime._kernels._kernels)
    with RowTrials(runtime._kernels, program, works, record, least_us) as trials:
        twins = dict(runtime._kernels._kernels)  # of the usual ones, if they were not there
        trials.build(changes.values(), 60.0)
        trials.token_us([{}, changes, {}])
        assert runtime._kernels._kernels == twins and before.keys() <= twins.keys()
        (usual_one, usual_token), (changed, token), (again, after) = timed
        assert described(usual_one) == described(again) == described(record(program.ops, program.barriers))
        assert same(usual_token, after)
        teams = {(one.type, one.cols): choice.lanes for one, choice in changes.items()}
        tuning = RowTuning(teams, {one: choice.division for one, choice in changes.items()})
        with divided(opened, weights, tuning):
            tuned = builder.build(64, settings, runtime._slot)
            recorded = record(tuned.ops, tuned.barriers)
        assert described(changed) == described(recorded) != described(usual_one)
        assert same(token, ran(opened, recorded))
        if lanes == "usual lanes":
            assert same(token, usual_token)
        assert not runtime._resources.flags.stuck


def parts(choice: Choice) -> int:
    return choice.division.workgroups * choice.division.teams
