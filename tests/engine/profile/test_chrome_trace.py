"""The trace of a tiny model in every mode: what Chrome's format asks for, and what a reader of it relies on."""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import BARRIERS, MODES, Engine, Sampling, Token, chrome_trace
from engine.profile.chrome_trace import microseconds
from tests.engine.weight_data import fresh_random
from tests.made_traces import made_trace
from tests.zincchat.cli.fake_engine import timing

GREEDY = Sampling(temperature=0.0)
TOKENS = 14
STAMP_EVERY = 3
ROW_KERNEL_MODES = tuple(mode for mode in MODES if mode != "persistent")


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Iterator[Engine]:
    with Engine.open(tiny_path) as opened:
        opened.warm_up()  # a kernel that is compiled in a token may last longer than 32 bits of its clock
        opened.stamp_every = STAMP_EVERY
        opened.request_stamps()
        yield opened


def tokens_of(engine: Engine, mode: str, barriers: str = "needed") -> list[Token]:
    engine.mode, engine.barriers = mode, barriers
    session = engine.session()
    session.prefill(list(range(9)))
    return list(session.generate(GREEDY, max_tokens=TOKENS, ignore_eos=True))


@pytest.fixture(scope="module")
def runs(engine: Engine) -> dict[tuple[str, str], list[Token]]:
    return {(mode, barriers): tokens_of(engine, mode, barriers) for mode in ROW_KERNEL_MODES for barriers in BARRIERS}


@pytest.fixture(params=[(mode, barriers) for mode in ROW_KERNEL_MODES for barriers in BARRIERS], ids="-".join)
def tokens(request: pytest.FixtureRequest, runs: dict[tuple[str, str], list[Token]]) -> list[Token]:
    return runs[request.param]


@pytest.fixture
def trace(tokens: list[Token]) -> dict[str, Any]:
    """As a reader of the file gets it."""
    written = json.dumps(chrome_trace(tokens, {"device": "a device", "driver": "a driver"}), allow_nan=False)
    return json.loads(written)


def events(trace: dict[str, Any], ph: str) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event["ph"] == ph]


def names(trace: dict[str, Any], what: str) -> dict[tuple[int, int], str]:
    named = [event for event in events(trace, "M") if event["name"] == what]
    return {(event["pid"], event["tid"]): event["args"]["name"] for event in named}


def track(trace: dict[str, Any], start: str) -> list[dict[str, Any]]:
    """The slices of the tracks whose name begins so."""
    wanted = {place for place, name in names(trace, "thread_name").items() if name.startswith(start)}
    return [event for event in events(trace, "X") if (event["pid"], event["tid"]) in wanted]


def test_every_event_has_what_the_format_asks_for(trace: dict[str, Any]) -> None:
    required = {"X": {"dur", "args"}, "i": {"s"}, "C": {"args"}, "M": {"args"}, "s": {"id"}, "f": {"id", "bp"}}
    for event in trace["traceEvents"]:
        assert {"name", "ph", "pid", "tid"} | required[event["ph"]] <= set(event)
        if event["ph"] != "M":
            assert event["ts"] >= 0
    assert {event["ph"] for event in trace["traceEvents"]} == set(required)


def test_processes_and_threads_are_named(trace: dict[str, Any]) -> None:
    processes, threads = names(trace, "process_name"), names(trace, "thread_name")
    assert sorted(processes.values()) == ["CPU", "GPU: a device"]
    assert {"CPU thread", "tokens", "GPU kernels"} < set(threads.values())
    used = {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["ph"] != "M"}
    assert used <= set(threads)
    assert {pid for pid, _ in used} <= {pid for pid, _ in processes}


def test_slices_on_a_track_neither_overlap_nor_run_backwards(trace: dict[str, Any]) -> None:
    tracks = defaultdict(list)
    for event in events(trace, "X"):
        assert event["dur"] >= 0
        tracks[event["pid"], event["tid"]].append((round(event["ts"] * 1000), round(event["dur"] * 1000)))
    for slices in tracks.values():
        slices.sort()
        for (start, duration), (following, _) in itertools.pairwise(slices):
            assert start + duration <= following


@pytest.mark.parametrize("to_ns", [int, round])
def test_perfetto_drops_no_slice(trace: dict[str, Any], to_ns: Callable[[float], int]) -> None:
    """Its importer makes nanoseconds by cutting off (until 2025) or rounding, and keeps a stack of slices a track.

    From slice_tracker.cc: one that begins within an open slice and ends beyond it is dropped. A flow's end goes to the
    slice around it, its start to the one that is open; instants and counters need what is checked here.
    """
    opened: dict[tuple[int, int], list[int]] = defaultdict(
        list
    )  # the ends of the slices that are open, outermost first
    flows: dict[int, int] = defaultdict(int)
    for event in trace["traceEvents"]:
        if event["ph"] == "M":
            assert isinstance(event["args"].get("name", event["args"].get("sort_index")), str | int)
            continue
        at_ns, ends = to_ns(event["ts"] * 1000.0), opened[event["pid"], event["tid"]]
        while ends and ends[-1] <= at_ns:
            ends.pop()
        if event["ph"] == "X":
            assert not ends or at_ns + to_ns(event["dur"] * 1000.0) <= ends[-1]
            assert to_ns(event["dur"] * 1000.0) >= 0
            ends.append(at_ns + to_ns(event["dur"] * 1000.0))
        elif event["ph"] in "sf":
            assert ends and event["cat"]
            flows[event["id"]] += 1 if event["ph"] == "s" else 10
        elif event["ph"] == "C":
            assert all(isinstance(value, float) for value in event["args"].values())
        else:
            assert event["s"] == "t"
    assert set(flows.values()) == {11}


def test_microseconds_give_back_their_nanoseconds() -> None:
    rng = fresh_random()
    drawn = [int(value) for value in rng.integers(0, 10**13, 20_000)]  # three hours
    for ns in (*range(20_000), *drawn):
        read = json.loads(json.dumps(microseconds(ns)))
        assert int(read * 1000.0) == round(read * 1000.0) == ns
    assert int(1001 / 1e3 * 1000.0) != 1001  # the reason


def test_the_cpu_submits_before_the_gpu_starts(trace: dict[str, Any]) -> None:
    submits = {event["args"]["token"]: event for event in track(trace, "CPU thread") if event["name"] == "submit"}
    starts = {event["args"]["index"]: event for event in track(trace, "GPU queue")}
    assert set(submits) == set(starts) == set(range(TOKENS))
    for index, submit in submits.items():
        assert submit["ts"] <= starts[index]["ts"]


def test_the_host_sees_the_fence_after_the_gpu_has_ended(tokens: list[Token]) -> None:
    for token in tokens:
        trace = token.trace
        waited_ns = next(lap.end_ns for lap in trace.laps if lap.step == "wait")
        assert trace.submit_ns <= trace.gpu_start_ns < trace.gpu_end_ns <= waited_ns + (trace.deviation_ns or 0)


def test_every_dispatch_of_a_stamped_token_is_there_with_its_piece_and_bytes(
    tokens: list[Token], trace: dict[str, Any]
) -> None:
    stamped = [token for token in tokens if token.timing.kernels_us is not None]
    if not stamped:
        pytest.skip("the kernels of this device cannot read a clock")
    assert len(stamped) >= 2  # fewer than every third in pipelined: what is in flight comes first
    queue = {event["args"]["index"]: event for event in track(trace, "GPU queue")}
    kernels = defaultdict(list)
    for event in track(trace, "GPU kernels"):
        kernels[event["args"]["token"]].append(event)
    assert set(kernels) == {token.timing.index for token in stamped}
    for token in stamped:
        found = kernels[token.timing.index]
        assert token.trace.stamped is not None
        ops = token.trace.stamped.program.ops
        expected = [(op.name, op.piece, op.bytes_at(token.trace.position)) for op in ops]
        assert sorted((e["args"]["op"], e["args"]["piece"], e["args"]["bytes"]) for e in found) == sorted(expected)
        around = queue[token.timing.index]
        for event in found:
            assert event["ts"] >= around["ts"] - 0.001
            assert event["ts"] + event["dur"] <= around["ts"] + around["dur"] + 0.001


def test_barriers_stand_between_their_kernels(tokens: list[Token], trace: dict[str, Any]) -> None:
    for token in tokens:
        name = "wait" if token.timing.barriers == "flags" and token.timing.mode != "persistent" else "barrier"
        found = [e for e in events(trace, "i") if e["name"] == name and e["args"]["token"] == token.timing.index]
        if token.timing.kernels_us is None:
            assert not found
            continue
        assert len(found) == token.timing.barrier_count
        waits_us = sum(event["args"]["gap_us"] for event in found)
        assert waits_us <= token.timing.bubbles_us + 0.01
        assert token.trace.stamped is not None
        names_in_order = [op.name for op in token.trace.stamped.program.ops]
        neighbours = set(itertools.pairwise(names_in_order))
        assert {(event["args"]["after"], event["args"]["before"]) for event in found} <= neighbours


def test_a_barriers_gap_ends_with_whatever_starts_first_behind_it() -> None:
    stamped = made_trace(timing(1, "reuse", True, "needed", stamped=True))
    assert stamped.stamped is not None
    program = stamped.stamped.program._replace(barriers=[False, True, False], barrier_count=1)
    spans_ns = np.array([[0.0, 1000.0], [4000.0, 6000.0], [3000.0, 5000.0]])  # the third does not wait for the second
    trace = replace(stamped, stamped=stamped.stamped._replace(program=program, spans_ns=spans_ns))
    token: Any = Token(1, "", timing(1, "reuse", True, "needed", stamped=True), trace)
    (barrier,) = (event for event in chrome_trace([token], {})["traceEvents"] if event["name"] == "barrier")
    assert barrier["args"] == {"token": 1, "after": "embed", "before": "blk.0.attn_qkv", "gap_us": 2.0}


def test_counters_are_those_of_the_records(tokens: list[Token], trace: dict[str, Any]) -> None:
    counted = defaultdict(list)
    for event in events(trace, "C"):
        counted[event["name"]].append(event["args"][event["name"]])
    timings = [token.timing for token in tokens]
    clean = [timing for timing in timings if timing.measured_by == "clean" and timing.index > 0]
    assert counted["tok/s"] == pytest.approx([1e6 / timing.period_us for timing in clean])
    for name in ("kernels_us", "bubbles_us"):
        assert counted[name] == [getattr(timing, name) for timing in timings if getattr(timing, name) is not None]


def test_the_metadata_says_how_the_axis_was_made(tokens: list[Token], trace: dict[str, Any]) -> None:
    data = trace["otherData"]
    assert (data["device"], data["driver"]) == ("a device", "a driver")
    assert data["calibrated"] == tokens[0].trace.calibrated
    assert (data["deviation_ns"] is not None) == data["calibrated"]


def test_without_calibration_the_trace_says_so_and_keeps_the_order(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine._runtime, "calibration", None)
    for mode in ROW_KERNEL_MODES:
        tokens = tokens_of(engine, mode)
        trace = chrome_trace(tokens, {})
        assert trace["otherData"]["calibrated"] is False
        assert trace["otherData"]["deviation_ns"] is None
        assert any("not calibrated" in name for name in names(trace, "thread_name").values())
        test_the_cpu_submits_before_the_gpu_starts(trace)
        test_slices_on_a_track_neither_overlap_nor_run_backwards(trace)
        test_the_host_sees_the_fence_after_the_gpu_has_ended(tokens)


def test_kernels_that_overlap_take_further_tracks(runs: dict[tuple[str, str], list[Token]]) -> None:
    stamped = [token for token in runs["reuse", "every"] if token.trace.stamped is not None]
    if not stamped:
        pytest.skip("the kernels of this device cannot read a clock")
    token = stamped[0]
    assert token.trace.stamped is not None
    spans_ns = token.trace.stamped.spans_ns.copy()
    spans_ns[:3] = (0, 5000), (1000, 3000), (1500, 2500)
    overlapping = replace(token.trace, stamped=token.trace.stamped._replace(spans_ns=spans_ns))
    trace = chrome_trace([replace(token, trace=overlapping)], {})
    assert {name for name in names(trace, "thread_name").values() if "kernels" in name} == {
        "GPU kernels", "GPU kernels 2", "GPU kernels 3",
    }  # fmt: skip
    test_slices_on_a_track_neither_overlap_nor_run_backwards(trace)


def test_no_token_is_a_valid_trace() -> None:
    trace = chrome_trace([], {})
    assert {event["ph"] for event in trace["traceEvents"]} == {"M"}
    json.dumps(trace, allow_nan=False)
