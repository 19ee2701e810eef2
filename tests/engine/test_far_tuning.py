"""How rows are divided for long contexts: measured there, kept, and the same text by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType as T

from engine import FUSION_PASSES, Engine, Sampling, row_tuner
from engine.decode.program import Settings
from engine.profile.instruments import Instruments
from engine.program.tuning import Division, Matrix, RowTuning
from engine.progress import no_progress
from engine.row_tuner import RowTuner
from tests.engine.tiny_runs import random_ids
from tests.engine.tunings import GPU, keep, kernels, measure, other_tuning

QKV, DOWN = Matrix("qkv_groups", T.Q4_K, 6144, 4096), Matrix("matvec_groups", T.Q4_K, 4096, 14336)
FAR = RowTuning({}, {QKV: Division(4, 4, 128), DOWN: Division(2, 4, 256), **GPU.divisions})


def far_us(us: dict[Matrix, float]) -> tuple[list[RowTuning | None], Callable[[Any], list[float]]]:
    """What was asked for, and a token's times by what is usual there."""
    asked: list[RowTuning | None] = []

    def least_us(sets: Any) -> list[float]:
        asked.extend(kernels.tuning for kernels in sets)
        return [sum(value for matrix, value in us.items() if matrix in each.tuning.divisions) for each in sets]

    return asked, least_us


@pytest.mark.parametrize(("us", "usual"), [
    ({QKV: 10.0, DOWN: -5.0}, {QKV}),
    ({QKV: 10.0, DOWN: 5.0}, {QKV, DOWN}),
    ({QKV: -10.0, DOWN: -5.0}, set()),
    ({QKV: 0.1, DOWN: -0.1}, set()),  # within noise
])  # fmt: skip
def test_what_slows_a_long_context_is_as_usual_there(
    kept_tunings: Path, monkeypatch: pytest.MonkeyPatch, us: dict[Matrix, float], usual: set[Matrix]
) -> None:
    measured = kernels()
    tuner = RowTuner(measured, None, ())
    asked, least_us = far_us({**us, next(iter(GPU.divisions)): 1000.0})
    weight: Any = SimpleNamespace(plans={"planned": "by a trial"}, parts=())
    tuner.measure_far(4000, least_us, [weight], no_progress)
    assert not asked  # nothing was measured yet
    measure(tuner, FAR, monkeypatch)
    tuner.measure_far(4000, least_us, [weight], no_progress)
    assert weight.plans == {}
    assert all(tuning.divisions.keys() >= GPU.divisions.keys() for tuning in asked if tuning)
    assert measured.tuning.divisions == FAR.divisions and measured.tuning.near_only == usual
    again = kernels()
    for one in (tuner, RowTuner(again, None, ())):
        assert (one.far is not None) == bool(usual)
        if one.far is not None:
            assert one.far.tuning.divisions.keys() == FAR.divisions.keys() - usual
        names = {"qkv Q4_K 6144 x 4096": QKV, "matvec Q4_K 4096 x 14336": DOWN}
        assert {names[name] for name in one.used.near_only} == usual
    assert again.tuning == measured.tuning


def test_a_longer_context_than_was_measured_is_measured_anew(kept_tunings: Path) -> None:
    keep(RowTuner(kernels(), None, ()), FAR)
    for position, slow, usual, measured_at in (
        (600, QKV, QKV, 600), (600, DOWN, QKV, 600), (4000, DOWN, DOWN, 4000), (2000, QKV, DOWN, 4000),
    ):  # fmt: skip
        taken = kernels()
        tuner = RowTuner(taken, None, ())
        _, least_us = far_us({QKV: -10.0, DOWN: -10.0, slow: 10.0})
        tuner.measure_far(position, least_us, (), no_progress)
        assert (taken.tuning.near_only, taken.tuning.far_position) == ({usual}, measured_at)
    _, nothing_slows = far_us({QKV: -10.0, DOWN: -10.0})
    tuner.measure_far(5000, nothing_slows, (), no_progress)
    assert tuner.far is None and taken.tuning.near_only == set()


def test_nothing_is_measured_where_only_the_head_is_divided_otherwise(kept_tunings: Path) -> None:
    keep(RowTuner(kernels(), None, ()), GPU)
    tuner = RowTuner(kernels(), None, ())
    tuner.measure_far(4000, lambda sets: pytest.fail("measured"), (), no_progress)
    assert tuner.used.origin == "remembered"


def choose_without_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a first start finds best for short contexts."""
    monkeypatch.setattr(row_tuner, "tune", lambda works, device, *_: other_tuning(device.subgroup_size))


def test_a_long_context_is_divided_by_its_own_measurement(
    one_layer_path: Path, kept_tunings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 512 tokens, at the first start and when it is remembered; and no id changes by it."""
    choose_without_trials(monkeypatch)
    positions = []
    usual_least_us = Instruments.least_us

    def least_us(self: Instruments, programs: list[Any], position: int = 0, barriers: str = "needed") -> list[float]:
        assert len(usual_least_us(self, programs, position, barriers)) == len(programs)
        if position:
            positions.append(position)
        return [float(len(programs) - index) for index in range(len(programs))]  # the last one is the fastest

    monkeypatch.setattr(Instruments, "least_us", least_us)
    prompt, sampling = random_ids(505), Sampling(temperature=0.8, seed=5)

    def reply() -> tuple[str, tuple[str, ...], list[tuple[int, ...]], list[int]]:
        with Engine.open(
            one_layer_path,
            context=1024,
            row_kernels=False,
            fusion=FUSION_PASSES,
            barriers="flags",
            mode="pipelined",
            tuning=True,
        ) as opened:
            opened.stamp_every = 0
            session = opened.session()
            session.prefill(prompt)
            ids = [token.id for token in session.generate(sampling, max_tokens=24, ignore_eos=True)]
            used = opened.tuning
            return used.origin, used.near_only, [qkv_division(opened, bucket) for bucket in (512, 1024)], ids

    for short in (512, 513):  # of the latter only the last token sees more, and a measurement has one behind its own
        with Engine.open(one_layer_path, context=short, row_kernels=False, tuning=True) as opened:
            assert opened.tuning.near_only == ()
    assert positions == []
    found = [reply(), reply()]
    assert positions == [1022, 1022]  # once, first all and then the best
    (first, near_only, divisions, ids), (second, *again) = found
    assert (first, second) == ("measured", "remembered") and again == [near_only, divisions, ids]
    assert "qkv Q4_1 128 x 64" in near_only and divisions[0] == (4, 2, 5) != divisions[1]
    monkeypatch.setattr(row_tuner, "_FASTER", 0.0)
    kept_tunings.unlink()
    assert reply() == ("measured", (), [(4, 2, 5)] * 2, ids)


def test_a_wait_in_vain_at_a_long_context_leaves_what_was_measured_before(
    one_layer_path: Path, kept_tunings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose_without_trials(monkeypatch)
    positions = []

    def least_us(self: Instruments, programs: list[Any], position: int = 0, barriers: str = "needed") -> list[float]:
        positions.append(position)
        self._flags._stuck[0] = position > 0
        return [float(-index) for index in range(len(programs))]

    monkeypatch.setattr(Instruments, "least_us", least_us)
    with Engine.open(one_layer_path, context=1024, row_kernels=False, fusion=FUSION_PASSES, tuning=True) as opened:
        assert positions[-1] == 1022 and "waited in vain" in opened.refused_barriers["flags"]
        assert (opened.barriers, opened.tuning.near_only) == ("needed", ())
        assert [qkv_division(opened, bucket) for bucket in (512, 1024)] == [(4, 2, 5)] * 2
        session = opened.session()
        session.prefill(random_ids(3))
        assert len(list(session.generate(Sampling(temperature=0.0), max_tokens=4, ignore_eos=True))) == 4


@pytest.mark.parametrize("far_position", [0, 4000], ids=["measured", "remembered"])
def test_a_long_context_builds_no_kernel_in_mid_reply(
    one_layer_path: Path, monkeypatch: pytest.MonkeyPatch, far_position: int
) -> None:
    def remembered(key: str, device: Any) -> RowTuning:
        found = other_tuning(device.subgroup_size)
        return replace(
            found, near_only=frozenset(found.divisions) if far_position else frozenset(), far_position=far_position
        )

    monkeypatch.setattr(row_tuner, "remembered", remembered)
    monkeypatch.setattr(row_tuner, "remember", lambda *_: None)
    monkeypatch.setattr(Instruments, "least_us", lambda self, programs, *_: [float(-i) for i in range(len(programs))])
    with Engine.open(one_layer_path, context=1024, row_kernels=False, barriers="needed", tuning=True) as opened:
        assert len(opened.tuning.near_only) == 3
        opened._runtime._stamp_thread.join()
        built = set(opened._runtime._kernels._kernels)
        opened.stamp_every = 4
        for opened.fusion in (FUSION_PASSES, ()):
            session = opened.session()
            session.prefill(random_ids(505))
            tokens = list(session.generate(Sampling(temperature=0.0), max_tokens=24, ignore_eos=True))
            assert "twin" in {token.timing.measured_by for token in tokens[10:]}
        assert set(opened._runtime._kernels._kernels) == built


def qkv_division(opened: Engine, bucket: int) -> tuple[int, ...]:
    runtime = opened._runtime
    ops = runtime.builder.build(bucket, Settings("reuse", FUSION_PASSES, "needed"), runtime._slot).ops
    (op,) = [op for op in ops if op.kernel.name == "qkv_groups"]
    return int(op.kernel.defines["ROWS"]), int(op.kernel.defines["TEAMS"]), op.groups[0]
