"""A first start's measurement of tokens: where, under which barriers, and that it leaves nothing but its result."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gguf import GGMLQuantizationType as T

from engine import Engine, EngineError, Sampling, row_measurement, row_tuner
from engine.decode import flags
from engine.decode.flags import Recordable
from engine.decode.program import DecodeProgram
from engine.flag_policy import FlagPolicy
from engine.profile import tune
from engine.profile.instruments import Instruments
from engine.profile.interleave import Rounds
from engine.profile.row_trials import Changes, RowTrials, workloads
from engine.profile.short_token import layer_of
from engine.profile.tune import Limits
from engine.program import row_choices
from engine.program.schedule import FLAGS, NEEDED
from engine.program.tuning import Matrix
from engine.row_measurement import RowMeasurement
from engine.row_tuner import RowTuner
from engine.vulkan.device import Device
from engine.vulkan.pipelines import Kernels
from tests.engine.thinking_folder import thinking_folder
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.tiny_runs import GREEDY, random_ids

SAMPLING = Sampling(temperature=0.8, top_p=1.0, seed=5)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch, kept_tunings: Path) -> None:
    monkeypatch.setattr(row_measurement, "_ROUNDS", Rounds(1, 1, 0.0))
    monkeypatch.setattr(row_tuner, "LIMITS", Limits(kernels=12, build_s=60.0))
    monkeypatch.setattr(flags, "_CHECK_ROUNDS", 10)


@pytest.fixture
def under_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here too, as GPUs have it."""

    def usual(self: FlagPolicy, passes: tuple[str, ...]) -> str:
        with suppress(EngineError):
            self._prepare(passes)
        return NEEDED if self.refused else FLAGS

    monkeypatch.setattr(FlagPolicy, "usual", usual)


class Measured:
    """Tokens run, and the last one tried seems the fastest; in the ``stuck``-th call it waits in vain."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stuck: int | None = None) -> None:
        self.positions = list[int]()
        self.waiting = set[bool]()
        run = Instruments.least_recorded_us

        def least_us(
            instruments: Instruments, recordable: Sequence[Recordable], position: int, rounds: Rounds
        ) -> list[float]:
            self.positions.append(position)
            self.waiting |= {"FLAGS" in op.kernel.defines for ops, _ in recordable for op in ops}
            if len(self.positions) == stuck:
                recordable = [*recordable[:-1], in_vain(recordable[-1])]
            assert all(us > 0 for us in run(instruments, recordable, position, rounds))
            return [float(len(recordable) - index) for index in range(len(recordable))]

        monkeypatch.setattr(Instruments, "least_recorded_us", least_us)


def in_vain(recordable: Recordable) -> Recordable:
    """In the middle a kernel waits for more than there is."""
    ops, barriers = recordable
    middle = len(ops) // 2
    op = ops[middle]
    waiting = op.with_kernel(op.kernel, op.push[:8] + struct.pack("<I", 1 << 30) + op.push[12:])
    return [*ops[:middle], waiting, *ops[middle + 1 :]], barriers


def opened(path: Path, **more: Any) -> Engine:
    return Engine.open(path, **{"context": 64, "row_kernels": False, "tuning": True, **more})


def reply(engine: Engine, sampling: Sampling = SAMPLING, prompt: int = 9) -> tuple[bytes, list[int]]:
    session = engine.session()
    logits = session.prefill(random_ids(prompt, vocab=250, seed=1))
    return logits.tobytes(), [token.id for token in session.generate(sampling, 24, ignore_eos=True)]


def test_a_model_is_measured_once(one_layer_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured, stages = Measured(monkeypatch), list[tuple[str, int, int]]()
    with opened(one_layer_path, progress=lambda *at: stages.append(at)) as engine:
        assert engine.tuning.origin == "measured" and engine.tuning.divisions
        found = engine.tuning
        assert set(measured.positions) == {62} and measured.waiting == {engine.barriers == FLAGS}
    shown = [at for at in stages if at[0] == "tuning"]
    assert shown[0] == ("tuning", 0, 100) and shown[-1] == ("tuning", 100, 100)
    assert shown == sorted(set(shown)) and len(shown) > 12
    counts = [(done, total) for stage, done, total in stages if stage == "kernels"]
    assert [total for done, total in counts if done == 0] == [total for done, total in counts if done == total]
    monkeypatch.setattr(RowTuner, "measure", lambda *_: pytest.fail("measured again"))
    with opened(one_layer_path) as engine:
        assert engine.tuning.origin == "remembered"
        assert (engine.tuning.lanes, engine.tuning.divisions) == (found.lanes, found.divisions)
    with opened(one_layer_path, tuning=False) as engine:
        assert engine.tuning.origin == "usual"


@pytest.mark.parametrize(("context", "position"), [(2, 0), (66, 64), (512, 64)])
def test_tokens_are_measured_behind_64_others_if_there_may_be_so_many(
    one_layer_path: Path, monkeypatch: pytest.MonkeyPatch, context: int, position: int
) -> None:
    measured = Measured(monkeypatch)
    with opened(one_layer_path, context=context) as engine:
        assert set(measured.positions) == {position} and engine.tuning.origin == "measured"


@pytest.mark.usefixtures("under_flags")
def test_what_the_usual_barriers_are_is_measured_and_built(
    one_layer_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no kernel is built in mid-reply, though the token's kernels are others than when they were first prepared."""
    measured = Measured(monkeypatch)
    with opened(one_layer_path, mode="pipelined") as engine:
        assert measured.waiting == {True} and engine.barriers == FLAGS and engine.tuning.divisions
        engine._runtime._stamp_thread.join()
        built = set(engine._runtime._kernels._kernels)
        engine.stamp_every = 4
        assert len(reply(engine)[1]) == 24
        assert set(engine._runtime._kernels._kernels) == built


@pytest.fixture(params=["llama", "in parts", "qwen3_5"])
def model(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "qwen3_5":
        return thinking_folder("qwen3_5", tmp_path / "qwen35")
    if request.param == "in parts":
        monkeypatch.setattr(Device, "most_slice_bytes", 8192)
    return write_tiny_llama(tmp_path / "tiny.gguf", layers=1, types={"*": T.Q4_1, "token_embd": T.Q8_0})


@pytest.mark.usefixtures("under_flags")
def test_other_divisions_change_no_text_and_a_measurement_leaves_nothing(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(model, tuning=False) as engine:
        expected = reply(engine)
    Measured(monkeypatch)
    monkeypatch.setattr(tune, "_FOR_LANES", 0.0)  # which are part of a row's arithmetic
    left, ended = list[list[npt.NDArray[np.uint8]]](), list[Kernels]()
    near, close = RowMeasurement.near, Kernels.close

    def compared(self: RowMeasurement, progress: Any) -> None:
        left.append(contents(self))
        near(self, progress)
        left.append(contents(self))

    def closed(self: Kernels) -> None:
        close(self)
        ended.append(self)

    monkeypatch.setattr(RowMeasurement, "near", compared)
    monkeypatch.setattr(Kernels, "close", closed)
    with opened(model) as engine:
        assert engine.tuning.origin == "measured" and engine.tuning.divisions and not engine.tuning.lanes
        assert len(ended) == 1 and not ended[0]._kernels  # those of the trials
        assert all(np.array_equal(before, after) for before, after in zip(*left, strict=True))
        for engine.mode, engine.barriers in (("reuse", NEEDED), ("pipelined", FLAGS)):
            assert reply(engine) == expected


@pytest.fixture
def six_layers(tmp_path: Path) -> Path:
    """Of three of them ffn_down is of another type."""
    more = {f"blk.{layer}.ffn_down": T.Q8_0 for layer in (0, 3, 5)}
    return write_tiny_llama(tmp_path / "six.gguf", layers=6, types={"*": T.Q4_1, "token_embd": T.Q8_0, **more})


class Timed:
    """Of each token that is timed its layers, and of all the matrices with other divisions."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.layers, self.tried, self.matrices = list[set[int]](), set[Matrix](), set[Matrix]()
        run, token_us, begin = Instruments.least_recorded_us, RowTrials.token_us, RowTuner.measure

        def least_us(instruments: Instruments, recordable: Sequence[Recordable], *more: Any) -> list[float]:
            self.layers += [{layer for op in ops if (layer := layer_of(op)) is not None} for ops, _ in recordable]
            return run(instruments, recordable, *more)

        def noted(trials: RowTrials, tokens: Sequence[Changes]) -> list[float]:
            self.tried.update(*tokens)
            return token_us(trials, tokens)

        def measure(tuner: RowTuner, program: DecodeProgram, *more: Any) -> None:
            self.matrices |= {work.matrix for work in workloads(program.ops, more[3])}
            begin(tuner, program, *more)

        monkeypatch.setattr(Instruments, "least_recorded_us", least_us)
        monkeypatch.setattr(RowTrials, "token_us", noted)
        monkeypatch.setattr(RowTuner, "measure", measure)
        monkeypatch.setattr(tune, "_other_lanes", lambda *_: iter(()))
        monkeypatch.setattr(tune, "divisions", lambda *of: row_choices.divisions(*of)[:2])


@pytest.mark.usefixtures("under_flags")
def test_a_long_token_is_timed_with_fewer_layers_and_all_matrices(
    six_layers: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(six_layers, tuning=False) as engine:
        expected = reply(engine)
    left, near = list[list[npt.NDArray[np.uint8]]](), RowMeasurement.near

    def compared(self: RowMeasurement, progress: Any) -> None:
        left.append(contents(self))
        near(self, progress)
        left.append(contents(self))

    monkeypatch.setattr(RowMeasurement, "near", compared)
    monkeypatch.setattr(row_measurement, "_LONG_US", 1e-3)
    timed = Timed(monkeypatch)
    with opened(six_layers) as engine:
        assert engine.tuning.origin == "measured" and not engine.tuning.lanes
        whole, again, *short = timed.layers  # the first two only say how long it is
        assert whole == again == set(range(6)) and short and all(layers == {0, 4} for layers in short)
        assert timed.tried == timed.matrices and len(timed.tried) == 6
        assert all(np.array_equal(before, after) for before, after in zip(*left, strict=True))
        usual = engine.barriers
        assert usual == FLAGS or FLAGS in engine.refused_barriers
        for engine.mode, engine.barriers in (("reuse", NEEDED), ("pipelined", usual)):
            assert reply(engine) == expected


def test_barriers_of_a_shortened_token_are_pipelines_too(six_layers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(six_layers, tuning=False) as engine:
        expected = reply(engine)
    monkeypatch.setattr(row_measurement, "_LONG_US", 1e-3)
    timed = Timed(monkeypatch)
    with opened(six_layers) as engine:
        assert engine.tuning.origin == "measured" and timed.layers[-1] == {0, 4}
        assert reply(engine) == expected


def test_a_short_token_is_timed_whole(six_layers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_measurement, "_LONG_US", 1e12)
    timed = Timed(monkeypatch)
    with opened(six_layers) as engine:
        assert engine.tuning.origin == "measured"
    assert len(timed.layers) > 6 and all(layers == set(range(6)) for layers in timed.layers)
    assert timed.tried == timed.matrices


def contents(rows: RowMeasurement) -> list[npt.NDArray[np.uint8]]:
    """Of what a token writes and the next one reads."""
    scratch, waits = rows._instruments._scratch, rows._waits
    cache = scratch._cache
    items = [item for layer in (*cache.attention, *cache.recurrent) for item in layer]
    return [
        scratch._memory.read(item).copy()
        for item in (scratch._state, scratch._logits, scratch._counters, waits._control, *items)
    ]


@pytest.mark.usefixtures("under_flags")
@pytest.mark.parametrize("call", [1, 4])
def test_a_wait_in_vain_leaves_all_as_usual(
    one_layer_path: Path, kept_tunings: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    with opened(one_layer_path, tuning=False, barriers=NEEDED) as engine:
        expected = reply(engine, GREEDY)
    monkeypatch.setattr(flags, "_PATIENCE", {**flags._PATIENCE, True: 1 << 10})
    measured = Measured(monkeypatch, stuck=call)
    with opened(one_layer_path) as engine:
        assert len(measured.positions) == call and measured.waiting == {True}
        assert "waited in vain" in engine.refused_barriers[FLAGS] and engine.barriers == NEEDED
        assert engine.tuning.origin == "usual" and engine._runtime._kernels.tuning is None
        waits = engine._runtime._resources.flags
        assert not waits.stuck and not waits._memory.read(waits._control)[:8].any()
        assert reply(engine, GREEDY) == expected
    assert not kept_tunings.exists()
