"""A tuning of rows: measured once for a device and its kernels, kept, and the same text by all modes under it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType as T

from engine import FUSION_PASSES, Engine, EngineError, Sampling, row_tuner
from engine.decode.program import Settings
from engine.profile import choose
from engine.program.tuning import ROW_KERNELS, UNTUNED, RowTuning, lanes
from engine.row_tuner import RowTuner
from engine.vulkan.shader_path import shader_root
from tests.engine.tiny_runs import random_ids
from tests.engine.tolerance import assert_greedy
from tests.engine.tunings import GPU, keep, kernels, measure, other_tuning


def test_measured_on_gpus_unless_it_is_not_wanted(kept_tunings: Path) -> None:
    assert RowTuner(kernels(), None, ()).is_due
    assert not RowTuner(kernels(), False, ()).is_due
    assert not RowTuner(kernels(is_cpu=True), None, ()).is_due
    assert RowTuner(kernels(is_cpu=True), True, ()).is_due
    assert not RowTuner(kernels(row_kernels=True), True, ()).is_due


def test_the_environment_can_leave_it_out(kept_tunings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINCCHAT_TUNING", "off")
    assert not RowTuner(kernels(), None, ()).is_due
    assert RowTuner(kernels(), True, ()).is_due


@pytest.mark.parametrize("word", ["OFF", "0", "no", "on"])
def test_the_environment_takes_no_other_word(kept_tunings: Path, monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    monkeypatch.setenv("ZINCCHAT_TUNING", word)
    with pytest.raises(EngineError, match=f"ZINCCHAT_TUNING is '{word}': set it to off"):
        RowTuner(kernels(), None, ())
    assert RowTuner(kernels(), True, ()).is_due


def test_what_was_measured_is_taken_at_the_next_start(kept_tunings: Path) -> None:
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


def test_another_shader_measures_again(kept_tunings: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_what_no_kernel_can_be_built_by_is_measured_anew(kept_tunings: Path, damage: Callable[[Any], Any]) -> None:
    keep(RowTuner(kernels(), None, ()), GPU)
    assert not RowTuner(kernels(), None, ()).is_due
    found = json.loads(kept_tunings.read_text())
    kept_tunings.write_text(json.dumps({key: damage(entry) for key, entry in found.items()}))
    again = kernels()
    assert RowTuner(again, None, ()).is_due and again.tuning is None
    kept_tunings.write_text("{")
    assert RowTuner(kernels(), None, ()).is_due


@pytest.mark.parametrize("best", [GPU, UNTUNED])
def test_what_was_found_best_is_used_and_kept(
    kept_tunings: Path, monkeypatch: pytest.MonkeyPatch, best: RowTuning
) -> None:
    weight: Any = SimpleNamespace(plans={"planned": "before"}, parts=(), quants=None)
    measured = kernels()
    tuner = RowTuner(measured, None, ())
    measure(tuner, best, monkeypatch, [weight])
    assert measured.tuning == best and weight.plans == {} and not tuner.is_due
    assert tuner.used.origin == "measured" and len(tuner.used.lanes) == len(best.lanes)
    again = kernels()
    assert not RowTuner(again, None, ()).is_due and again.tuning == best


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
    one_layer_path: Path, kept_tunings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_tuner, "remembered", lambda key, device: other_tuning(device.subgroup_size))
    prompt = random_ids(9)
    with Engine.open(one_layer_path, context=64, row_kernels=False, tuning=True, fusion=FUSION_PASSES) as opened:
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
        assert_greedy(opened, one_layer_path, prompt, greedy)
