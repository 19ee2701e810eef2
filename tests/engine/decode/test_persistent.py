"""Mode ``persistent`` on a software device: waits that end, dispatches of several tokens, stamps."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from engine import FUSION_PASSES, Engine, EngineError, Sampling, chrome_trace
from engine.decode import persistent, walker
from engine.decode.persistent import Persistent
from engine.decode.program import Settings
from engine.decode.walker import Walker
from tests.engine.profile import test_chrome_trace
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.tiny_runs import attends_by_matrices, take_mode
from tests.engine.walk import one_short
from tests.flipping import generate

GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Iterator[Engine]:
    with Engine.open(tiny_path, context=1536, row_kernels=False) as opened:
        opened.stamp_every = 0
        yield opened


@pytest.fixture
def mode(engine: Engine) -> Iterator[Persistent]:
    """The engine in this mode; a dispatch may take any time, so that it has eight tokens."""
    engine.mode = "persistent"
    found = engine._runtime.mode("persistent")
    assert isinstance(found, Persistent)
    found.dispatch_us = 1e9
    yield found
    engine.mode, engine.stamp_every = "reuse", 0


def prompt(count: int = 5) -> list[int]:
    return np.random.default_rng(count).integers(0, 320, count).tolist()


def test_a_wait_in_vain_ends_the_reply_with_one_line_and_leaves_the_engine_usable(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine.open(tiny_path, context=64, row_kernels=False) as engine:
        engine.stamp_every = 0
        take_mode(engine, "persistent")
        expected = generate(engine, prompt(), GREEDY, 20).ids
        monkeypatch.setattr(walker, "_PATIENCE", {True: 1 << 12, False: 1 << 12})
        monkeypatch.setattr(Walker, "op", one_short(Walker.op))
        engine.barriers = "every"  # a tape of its own
        session = engine.session()
        session.prefill(prompt())
        with pytest.raises(EngineError, match="waited in vain"):
            list(session.generate(GREEDY, 20, ignore_eos=True))
        assert engine._runtime.mode("persistent").in_flight == 0 and session.ids == []
        engine.mode, engine.barriers = "reuse", "needed"
        session.prefill(prompt())
        assert [token.id for token in session.generate(GREEDY, 20, ignore_eos=True)] == expected
        monkeypatch.undo()
        engine.mode = "persistent"
        assert generate(engine, prompt(), GREEDY, 20).ids == expected


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=1.1, top_p=0.97, repeat_penalty=1.1, seed=5)])
def test_dispatches_of_many_tokens_across_buckets_give_the_ids_of_other_modes(
    engine: Engine, mode: Persistent, sampling: Sampling
) -> None:
    start = prompt(480)
    found = generate(engine, start, sampling, 600).ids
    engine.mode = "pipelined"
    assert generate(engine, start, sampling, 600).ids == found


def test_a_bucket_has_a_kernel_without_what_others_attend_by(engine: Engine, mode: Persistent) -> None:
    generate(engine, prompt(505), GREEDY, 12)  # across a bucket's end
    attends = [
        {kernel.name for kernel in walker._joined.numbers if kernel.name.startswith("attend")}
        for (*_, stamped), walker in mode._walkers.items()
        if not stamped
    ]
    assert {"attend_groups"} in attends and ({"attend_matrices"} in attends) == attends_by_matrices(engine)
    assert all(len(names) == 1 for names in attends)


def test_a_flip_of_fusion_takes_another_build_of_the_same_kernels(tmp_path: Path) -> None:
    """Of two layers only one can have gate and up in one op: the kernels' names are the same with that pass or not."""
    types = {"*": Type.Q4_1, "token_embd": Type.Q8_0, "blk.0.ffn_up": Type.Q8_0}
    path = write_tiny_llama(tmp_path / "model.gguf", layers=2, types=types)
    passes = tuple(name for name in FUSION_PASSES if name != "gate_up")
    with Engine.open(path, context=64, row_kernels=False) as engine:
        engine.stamp_every = 0
        expected = generate(engine, prompt(), GREEDY, 12).ids
        take_mode(engine, "persistent")
        for engine.fusion in (passes, FUSION_PASSES, passes):
            assert generate(engine, prompt(), GREEDY, 12).ids == expected


def test_programs_that_give_way_to_others_leave_their_memory_to_them(
    engine: Engine, mode: Persistent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistent, "_MAX_PROGRAMS", 2)

    def flip() -> None:
        for engine.barriers, engine.fusion in itertools.product(("every", "needed"), (False, FUSION_PASSES)):
            generate(engine, prompt(), GREEDY, 12)

    for _ in range(3):
        flip()
    recordings, memory = mode.recordings, engine._runtime.memory
    monkeypatch.setattr(memory, "allocate", lambda *_, **__: pytest.fail("allocates more"))
    flip()
    assert mode.recordings > recordings


def test_a_dispatch_makes_up_to_eight_tokens_but_no_more_than_are_wanted(engine: Engine, mode: Persistent) -> None:
    engine.session()
    generate(engine, prompt(), GREEDY, 30)  # how long a token takes is known now
    submitted: list[int] = []
    submit = mode._submit
    mode._submit = lambda request, position, tokens: (submitted.append(tokens), submit(request, position, tokens))[1]  # type: ignore[method-assign, func-returns-value]
    try:
        session = engine.session()
        session.prefill(prompt())
        tokens = list(session.generate(GREEDY, 24, ignore_eos=True))
        assert submitted == [8, 8, 7] and len(tokens) == 24  # the first is sampled from the prefill's logits
        assert mode.in_flight == 0 and session.position == 5 + 23
        submitted.clear()
        session.prefill(prompt(507))
        list(session.generate(GREEDY, 12, ignore_eos=True))
        assert submitted == [5, 6]  # not across the bucket's end at 512
    finally:
        mode._submit = submit  # type: ignore[method-assign]


def test_cancelling_keeps_what_is_in_flight(engine: Engine, mode: Persistent) -> None:
    whole = generate(engine, prompt(), GREEDY, 60).ids
    session, cancel = engine.session(), threading.Event()
    session.prefill(prompt())
    ids = []
    for token in session.generate(GREEDY, 60, ignore_eos=True, cancel=cancel):
        ids.append(token.id)
        if len(ids) == 3:
            cancel.set()
    assert 3 < len(ids) < 3 + 3 * 8 and ids == whole[: len(ids)]
    assert session.finish_reason == "cancelled" and session.ids == prompt() + ids[:-1]


def test_records_are_honest(engine: Engine, mode: Persistent) -> None:
    session = engine.session()
    session.prefill(prompt())
    clean = [token.timing for token in session.generate(GREEDY, 20, ignore_eos=True)][1:]
    assert {timing.dispatches for timing in clean} == {1} and all(timing.mode == "persistent" for timing in clean)
    program = engine._runtime.builder.build(512, Settings("reuse", engine._passes, "needed"), engine._runtime._slot)
    assert {timing.barrier_count for timing in clean} == {program.barrier_count + 1}  # and one between two tokens
    assert all(timing.gpu_total_us > 0 and timing.gpu_idle_before_us >= 0 for timing in clean[1:])
    submitting = [timing for timing in clean if timing.submit_us > 0]
    assert 0 < len(submitting) < len(clean)  # the host works once a dispatch
    for before, after in itertools.pairwise(clean):
        if after.submit_us == 0:  # it came with the one before: an equal share of the wait, and its own handing out
            assert after.period_us > min(timing.period_us for timing in submitting)
            assert after.gpu_idle_before_us == 0 and before.gpu_total_us > 0


def test_its_trace_keeps_the_order_of_time(engine: Engine, mode: Persistent) -> None:
    engine.stamp_every = 5
    session = engine.session()
    session.prefill(prompt())
    tokens = list(session.generate(GREEDY, 24, ignore_eos=True))
    trace = json.loads(json.dumps(chrome_trace(tokens, {}), allow_nan=False))
    arrows = [event for event in trace["traceEvents"] if event["name"] == "submit" and event["ph"] in "sf"]
    starts, ends = ({event["id"]: event["ts"] for event in arrows if event["ph"] == ph} for ph in "sf")
    assert 3 < len(starts) < len(tokens) and starts.keys() == ends.keys()  # one a dispatch
    assert all(starts[id] <= ends[id] for id in starts)
    test_chrome_trace.test_slices_on_a_track_neither_overlap_nor_run_backwards(trace)


def test_the_bubble_meter_says_that_it_is_not_for_this_mode(engine: Engine, mode: Persistent) -> None:
    with pytest.raises(EngineError, match="the bubble meter runs dispatches"):
        engine.measure_bubbles()


def test_a_stamped_token_accounts_for_its_time(engine: Engine, mode: Persistent) -> None:
    engine.request_stamps()
    session = engine.session()
    session.prefill(prompt())
    tokens = list(session.generate(GREEDY, 4, ignore_eos=True))
    (stamped,) = [token for token in tokens if token.timing.measured_by == "twin"]
    timing = stamped.timing
    assert timing.dispatches == 1
    assert timing.kernels_us > 0 and timing.bubbles_us > 0
    assert timing.kernels_us + timing.bubbles_us <= timing.gpu_total_us
    assert abs(sum(timing.pieces_us.values()) - timing.kernels_us) < 1
    assert abs(timing.kernels_us + timing.bubbles_us + timing.edges_us - timing.gpu_total_us) < 1
    spans = stamped.trace.kernel_spans_ns
    assert (spans[:, 0] <= spans[:, 1]).all() and (spans[1:, 0] >= spans[:-1, 1]).all()  # one stage after another


@pytest.mark.parametrize("problem", ["not all of its workgroups run", EngineError("the driver refuses it")])
def test_where_the_stamped_kernel_fails_its_check_tokens_stay_clean(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, problem: str | EngineError
) -> None:
    """It has more code than the clean one, and so may have fewer workgroups that run at the same time."""

    def fail(*_: object) -> str:
        if isinstance(problem, EngineError):
            raise problem
        return problem

    monkeypatch.setattr(persistent, "check", fail)  # of the clean one most_workgroups does it
    with Engine.open(tiny_path, context=64, row_kernels=False) as engine:
        expected = generate(engine, prompt(), GREEDY, 12).ids
        engine.mode, engine.stamp_every = "persistent", 3
        engine.request_stamps()
        session = engine.session()
        session.prefill(prompt())
        tokens = list(session.generate(GREEDY, 12, ignore_eos=True))
        assert [token.id for token in tokens] == expected
        assert {(token.timing.mode, token.timing.measured_by) for token in tokens[1:]} == {("persistent", "clean")}


@pytest.mark.parametrize(("build", "reason"), [
    ({}, "made for GPUs"),
    ({"row_kernels": False, "binding": "descriptors"}, "the descriptor build"),
])  # fmt: skip
def test_where_it_is_not_offered_the_reason_is_said(tiny_path: Path, build: dict[str, object], reason: str) -> None:
    with Engine.open(tiny_path, context=64, **build) as engine:  # type: ignore[arg-type]
        if reason == "made for GPUs" and not engine.device.is_software:
            pytest.skip("this device is one")
        assert "persistent" not in engine.modes and reason in engine.refused_modes["persistent"]
        with pytest.raises(EngineError, match=rf"^mode persistent is not offered here: .*{reason}"):
            engine.mode = "persistent"
        assert engine.mode == "reuse"


def test_a_kernel_that_fails_its_check_is_refused_from_then_on(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(walker, "_TEST_PATIENCE", {True: 1 << 12, False: 1 << 12})
    monkeypatch.setattr(Walker, "op", one_short(Walker.op))
    with Engine.open(tiny_path, context=64, row_kernels=False, mode="persistent") as engine:
        session = engine.session()
        session.prefill(prompt())
        with pytest.raises(
            EngineError, match=r"mode persistent is not offered here: .* do not all run at the same time"
        ):
            list(session.generate(GREEDY, 5, ignore_eos=True))
        assert "persistent" not in engine.modes
        engine.mode = "reuse"
        session.prefill(prompt())
        assert len(list(session.generate(GREEDY, 5, ignore_eos=True))) == 5
