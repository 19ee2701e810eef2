"""A tuning of rows: measured once for a device and its kernels, kept, and the same text by all modes under it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType as T

from engine import FUSION_PASSES, Engine, EngineError, Sampling, row_tuner
from engine.decode.program import Settings
from engine.profile import choose, remembered_tuning
from engine.profile.instruments import Instruments
from engine.profile.row_trials import Limits, RowTrials
from engine.profile.tune import Tuned
from engine.program.tuning import ROW_KERNELS, UNTUNED, Division, Matrix, RowTuning, lanes
from engine.progress import no_progress
from engine.row_tuner import RowTuner
from engine.vulkan.shader_path import shader_root
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.tiny_runs import random_ids
from tests.engine.tolerance import assert_greedy

GPU = RowTuning({(T.Q4_0, 4096): 32}, {Matrix("head_groups", T.Q6_K, 32000, 4096): Division(4, 4, 132)})


def other_tuning(subgroup_size: int) -> RowTuning:
    """For the model below. Usual are a subgroup for 64 columns, and for 384 as many as there are blocks of 32."""
    one, two, four = (subgroup_size * factor for factor in (1, 2, 4))
    return RowTuning(
        {(T.Q4_1, 64): two, (T.Q4_1, 384): one if lanes(T.Q4_1, 384, one) > one else two, (T.Q8_0, 64): four},
        {
            Matrix("qkv_groups", T.Q4_1, 128, 64): Division(4, 2, 5),
            Matrix("gate_up_groups", T.Q4_1, 384, 64): Division(2, 3, 64),
            Matrix("matvec_groups", T.Q4_1, 64, 384): Division(8, 4, 2),
        },
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "model.gguf", ffn=384, layers=1)


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where tunings are kept; GPUs are measured as they are outside of tests."""
    monkeypatch.delenv("ZINCCHAT_TUNING", raising=False)
    monkeypatch.setattr(remembered_tuning, "_file", lambda: tmp_path / "rows.json")
    return tmp_path / "rows.json"


def kernels(driver: str = "1.0", is_cpu: bool = False, row_kernels: bool = False) -> Any:
    """As much of a device's kernels as a RowTuner asks for."""
    info = SimpleNamespace(name="device", driver=driver)
    limits = {"subgroup_size": 32, "most_invocations": 1024, "shared_bytes": 48 << 10}
    device = SimpleNamespace(info=info, is_cpu=is_cpu, row_kernels=row_kernels, **limits)
    return SimpleNamespace(device=device, base={}, resident=None, tuning=None)


def keep(tuner: RowTuner, tuning: RowTuning) -> None:
    remembered_tuning.remember(tuner._key, tuning)


def test_measured_on_gpus_unless_it_is_not_wanted(kept: Path) -> None:
    assert RowTuner(kernels(), None, ()).is_due
    assert not RowTuner(kernels(), False, ()).is_due
    assert not RowTuner(kernels(is_cpu=True), None, ()).is_due
    assert RowTuner(kernels(is_cpu=True), True, ()).is_due
    assert not RowTuner(kernels(row_kernels=True), True, ()).is_due


def test_the_environment_can_leave_it_out(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINCCHAT_TUNING", "off")
    assert not RowTuner(kernels(), None, ()).is_due
    assert RowTuner(kernels(), True, ()).is_due


@pytest.mark.parametrize("word", ["OFF", "0", "no", "on"])
def test_the_environment_takes_no_other_word(kept: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("ZINCCHAT_TUNING", word)
    with pytest.raises(EngineError, match=f"ZINCCHAT_TUNING is '{word}': set it to off"):
        RowTuner(kernels(), None, ())
    assert RowTuner(kernels(), True, ()).is_due


def test_what_was_measured_is_taken_at_the_next_start(kept: Path) -> None:
    keep(RowTuner(kernels(), None, ("a",)), GPU)
    again = kernels()
    tuner = RowTuner(again, None, ("a",))
    assert not tuner.is_due and again.tuning == GPU
    assert tuner.used.origin == "remembered" and tuner.used.lanes == {"Q4_0 x 4096": 32}
    assert tuner.used.divisions == {"head Q6_K 32000 x 4096": (4, 4, 132)}
    unwanted = kernels()
    assert RowTuner(unwanted, False, ("a",)).used.origin == "usual" and unwanted.tuning is None
    assert RowTuner(kernels(), None, ("another shape",)).is_due
    assert RowTuner(kernels(driver="1.1"), None, ("a",)).is_due


def test_another_shader_measures_again(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(RowTuner(kernels(), None, ()), GPU)
    shaders = tmp_path / "shaders"
    shutil.copytree(shader_root(), shaders)
    monkeypatch.setattr(choose, "shader_root", lambda: shaders)
    assert not RowTuner(kernels(), None, ()).is_due
    with (shaders / "include" / "row_products.glsl").open("a") as file:
        file.write("// another\n")
    assert RowTuner(kernels(), None, ()).is_due


def other_lanes(lanes: Any) -> Callable[[Any], Any]:
    return lambda entry: entry | {"lanes": [["Q4_0", 4096, lanes]]}


def other_division(*parts: Any) -> Callable[[Any], Any]:
    return lambda entry: entry | {"divisions": [["head_groups", "Q6_K", 32000, 4096, *parts]]}


@pytest.mark.parametrize("damage", [
    lambda entry: None, lambda entry: [], lambda entry: {}, lambda entry: entry | {"lanes": [[1, 2]]},
    other_lanes(0), other_lanes(33), other_lanes(2048), other_lanes("x"), other_lanes(float("inf")),
    other_division(3, 4, 132), other_division(4, 0, 132), other_division(4, 64, 1), other_division(4, 4, 10**6),
    other_division(16, 4, 10), other_division(4, 4), other_division(4, 4, None),
    lambda entry: entry | {"divisions": [["norm", "Q6_K", 32000, 4096, 4, 4, 132]]},
    lambda entry: entry | {"divisions": [["head_groups", "Q9_K", 32000, 4096, 4, 4, 132]]},
    lambda entry: entry | {"near_only": [["head_groups", "Q6_K"]]}, lambda entry: entry | {"far_position": None},
])  # fmt: skip
def test_what_no_kernel_can_be_built_by_is_measured_anew(kept: Path, damage: Callable[[Any], Any]) -> None:
    keep(RowTuner(kernels(), None, ()), GPU)
    assert not RowTuner(kernels(), None, ()).is_due
    found = json.loads(kept.read_text())
    kept.write_text(json.dumps({key: damage(entry) for key, entry in found.items()}))
    again = kernels()
    assert RowTuner(again, None, ()).is_due and again.tuning is None
    kept.write_text("{")
    assert RowTuner(kernels(), None, ()).is_due


@pytest.mark.parametrize(("token_us", "taken"), [((10.0, 9.9), GPU), ((10.0, 10.0), UNTUNED)])
def test_a_tuning_by_which_no_token_is_faster_is_not_taken(
    kept: Path, monkeypatch: pytest.MonkeyPatch, token_us: tuple[float, float], taken: RowTuning
) -> None:
    monkeypatch.setattr(row_tuner, "tune", lambda *_: Tuned(GPU, {}))
    monkeypatch.setattr(row_tuner, "RowTrials", lambda *_: nullcontext(SimpleNamespace(times_us=dict)))
    programs: list[RowTuning | None] = []
    measured = kernels()

    def build() -> Any:
        programs.append(measured.tuning)
        return SimpleNamespace(ops=[])

    weight = SimpleNamespace(plans={"planned": "before"}, parts=(), quants=None)
    weights: Any = [weight]
    tuner = RowTuner(measured, None, ())
    tuner.measure(build, lambda programs: list(token_us)[: len(programs)], weights, no_progress)
    assert programs == [None, GPU]
    assert measured.tuning == taken and weight.plans == {} and not tuner.is_due
    assert tuner.used.origin == "measured" and len(tuner.used.lanes) == len(taken.lanes)
    again = kernels()
    assert not RowTuner(again, None, ()).is_due and again.tuning == taken


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
    kept: Path, monkeypatch: pytest.MonkeyPatch, us: dict[Matrix, float], usual: set[Matrix]
) -> None:
    monkeypatch.setattr(row_tuner, "tune", lambda *_: Tuned(FAR, {}))
    monkeypatch.setattr(row_tuner, "RowTrials", lambda *_: nullcontext(SimpleNamespace(times_us=dict)))
    measured = kernels()
    tuner = RowTuner(measured, None, ())
    asked, least_us = far_us({**us, next(iter(GPU.divisions)): 1000.0})
    weight: Any = SimpleNamespace(plans={"planned": "by a trial"}, parts=())
    tuner.measure_far(4000, least_us, [weight], no_progress)
    assert not asked  # nothing was measured yet
    tuner.measure(lambda: SimpleNamespace(ops=[]), lambda programs: [2.0, 1.0][: len(programs)], (), no_progress)
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


def test_a_longer_context_than_was_measured_is_measured_anew(kept: Path) -> None:
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


def test_nothing_is_measured_where_only_the_head_is_divided_otherwise(kept: Path) -> None:
    keep(RowTuner(kernels(), None, ()), GPU)
    tuner = RowTuner(kernels(), None, ())
    tuner.measure_far(4000, lambda sets: pytest.fail("measured"), (), no_progress)
    assert tuner.used.origin == "remembered"


def test_a_long_context_is_divided_by_its_own_measurement(
    path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond 512 tokens, at the first start and when it is remembered; and no id changes by it."""
    monkeypatch.setattr(row_tuner, "tune", lambda works, device, *_: Tuned(other_tuning(device.subgroup_size), {}))
    monkeypatch.setattr(RowTrials, "times_us", lambda *_, **__: {})
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
            path, context=1024, row_kernels=False, fusion=FUSION_PASSES, barriers="flags", mode="pipelined", tuning=True
        ) as opened:
            opened.stamp_every = 0
            session = opened.session()
            session.prefill(prompt)
            ids = [token.id for token in session.generate(sampling, max_tokens=24, ignore_eos=True)]
            used = opened.tuning
            return used.origin, used.near_only, [qkv_division(opened, bucket) for bucket in (512, 1024)], ids

    for short in (512, 513):  # of the latter only the last token sees more, and a measurement has one behind its own
        with Engine.open(path, context=short, row_kernels=False, tuning=True) as opened:
            assert opened.tuning.near_only == ()
    assert positions == []
    found = [reply(), reply()]
    assert positions == [1022, 1022]  # once, first all and then the best
    (first, near_only, divisions, ids), (second, *again) = found
    assert (first, second) == ("measured", "remembered") and again == [near_only, divisions, ids]
    assert "qkv Q4_1 128 x 64" in near_only and divisions[0] == (4, 2, 5) != divisions[1]
    monkeypatch.setattr(row_tuner, "_FASTER", 0.0)
    kept.unlink()
    assert reply() == ("measured", (), [(4, 2, 5)] * 2, ids)


def test_a_wait_in_vain_at_a_long_context_leaves_what_was_measured_before(
    path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_tuner, "tune", lambda works, device, *_: Tuned(other_tuning(device.subgroup_size), {}))
    monkeypatch.setattr(RowTrials, "times_us", lambda *_, **__: {})
    positions = []

    def least_us(self: Instruments, programs: list[Any], position: int = 0, barriers: str = "needed") -> list[float]:
        positions.append(position)
        self._flags._stuck[0] = position > 0
        return [float(-index) for index in range(len(programs))]

    monkeypatch.setattr(Instruments, "least_us", least_us)
    with Engine.open(path, context=1024, row_kernels=False, fusion=FUSION_PASSES, tuning=True) as opened:
        assert positions[-1] == 1022 and "waited in vain" in opened.refused_barriers["flags"]
        assert (opened.barriers, opened.tuning.near_only) == ("needed", ())
        assert [qkv_division(opened, bucket) for bucket in (512, 1024)] == [(4, 2, 5)] * 2
        session = opened.session()
        session.prefill(random_ids(3))
        assert len(list(session.generate(Sampling(temperature=0.0), max_tokens=4, ignore_eos=True))) == 4


@pytest.mark.parametrize("far_position", [0, 4000], ids=["measured", "remembered"])
def test_a_long_context_builds_no_kernel_in_mid_reply(
    path: Path, monkeypatch: pytest.MonkeyPatch, far_position: int
) -> None:
    def remembered(key: str, device: Any) -> RowTuning:
        found = other_tuning(device.subgroup_size)
        return replace(
            found, near_only=frozenset(found.divisions) if far_position else frozenset(), far_position=far_position
        )

    monkeypatch.setattr(row_tuner, "remembered", remembered)
    monkeypatch.setattr(row_tuner, "remember", lambda *_: None)
    monkeypatch.setattr(Instruments, "least_us", lambda self, programs, *_: [float(-i) for i in range(len(programs))])
    with Engine.open(path, context=1024, row_kernels=False, barriers="needed", tuning=True) as opened:
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


def test_a_model_is_measured_once(path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tuner, "LIMITS", Limits(kernels=6, build_s=2.0, run_s=0.05))
    stages: list[tuple[str, int, int]] = []
    with Engine.open(
        path, context=64, row_kernels=False, tuning=True, progress=lambda *at: stages.append(at)
    ) as opened:
        assert opened.tuning.origin == "measured"
        times = opened._runtime.tuner.times
        assert len({choice.matrix for choice in times}) == 5  # qkv, output, gate and up, down, head
        assert all(us > 0 for us in times.values()) and len(times) > 5
        measured = opened.tuning
    assert [at for at in stages if at[0] == "tuning"][-1] == ("tuning", 6, 6)
    counts = [(done, total) for stage, done, total in stages if stage == "kernels"]
    assert [total for done, total in counts if done == 0] == [total for done, total in counts if done == total]
    monkeypatch.setattr(RowTuner, "measure", lambda *_: pytest.fail("measured again"))
    with Engine.open(path, context=64, row_kernels=False, tuning=True) as opened:
        assert opened.tuning.origin == "remembered"
        assert (opened.tuning.lanes, opened.tuning.divisions) == (measured.lanes, measured.divisions)
    with Engine.open(path, context=64, row_kernels=False, tuning=False) as opened:
        assert opened.tuning.origin == "usual"


def lanes_used(opened: Engine) -> set[tuple[tuple[T, int], int]]:
    """(type, cols) and lanes of the row kernels of both programs of mode ``reuse``."""
    runtime, found = opened._runtime, set()
    for passes in (FUSION_PASSES, ()):
        for op in runtime.builder.build(64, Settings("reuse", passes, "needed"), runtime._slot).ops:
            if op.kernel.name in ROW_KERNELS:
                defines = op.kernel.defines
                kind = T[str(defines["WEIGHT_TYPE"]).removeprefix("WEIGHT_")]
                found.add(((kind, int(defines["COLS"])), int(defines["LANES"])))
    return found


def test_all_modes_give_the_same_text_under_another_tuning(
    path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_tuner, "remembered", lambda key, device: other_tuning(device.subgroup_size))
    prompt = random_ids(9)
    with Engine.open(path, context=64, row_kernels=False, tuning=True, fusion=FUSION_PASSES) as opened:
        opened.stamp_every = 0
        ids = {}
        modes = [(mode, FUSION_PASSES) for mode in opened.modes]
        for mode, fusion in (*modes, ("reuse", ())):
            opened.mode, opened.fusion = mode, fusion
            session = opened.session()
            session.prefill(prompt)
            sampling = Sampling(temperature=0.8, top_p=1.0, seed=5)
            tokens = list(session.generate(sampling, max_tokens=24, ignore_eos=True))
            ids[mode, fusion] = [token.id for token in tokens]
        assert "persistent" in opened.modes
        assert len({tuple(one) for one in ids.values()}) == 1
        size = opened._runtime._device.subgroup_size
        assert lanes_used(opened) == set(other_tuning(size).lanes.items())
        assert all(lanes(*matrix, size) != other for matrix, other in lanes_used(opened))
        session = opened.session()
        session.prefill(prompt)
        greedy = [token.id for token in session.generate(Sampling(temperature=0.0), max_tokens=12, ignore_eos=True)]
        assert_greedy(opened, path, prompt, greedy)
