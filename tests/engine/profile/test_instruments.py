"""What an engine measures between turns: that it is there, adds up, and leaves no trace in the conversation."""

from __future__ import annotations

import dataclasses
import itertools

import gguf
import numpy as np
import pytest

from engine import BARRIERS, Engine, EngineError, Sampling
from tests.engine.tiny_model import write_tiny_llama

GREEDY = Sampling(temperature=0.0)
PROMPT = np.random.default_rng(5).integers(3, 300, 70).tolist()


@pytest.fixture(scope="module")
def engine(tiny_path):
    with Engine.open(tiny_path, context=128) as opened:
        yield opened


def reply(session, count=20):
    return [token.id for token in session.generate(GREEDY, count, ignore_eos=True)]


def test_measuring_changes_nothing_of_a_conversation(engine):
    session = engine.session()
    session.prefill(PROMPT)
    expected = reply(session)
    longer = [*PROMPT, *expected[:-1], 17]
    session.prefill(longer)
    continued = reply(session)

    session = engine.session()
    session.prefill(PROMPT)
    positions = iter((0, 40, None, 127, 1, 2))
    for engine.barriers in BARRIERS:
        for engine.fusion in (True, False):
            engine.measure_bubbles(next(positions))
    assert reply(session) == expected
    engine.measure_submit_hint(3)
    engine.measure_bubbles(12)
    engine.warm_up()
    session.prefill(longer)
    assert session.prefill_stats.tokens == 1  # the rest is still in the cache
    assert reply(session) == continued


def test_a_token_behind_an_end_token_is_measured_whole(tiny_path):
    """After a reply that ended, the device's state says that tokens write nothing; the measured ones do work."""
    with Engine.open(tiny_path, context=128) as opened:
        session = opened.session()
        session.prefill(PROMPT)
        first = reply(session)[5]
        opened.stop_ids = frozenset({first})
        session = opened.session()
        session.prefill(PROMPT)
        list(session.generate(GREEDY, 20))
        assert session.finish_reason == "stop"
        report = opened.measure_bubbles()
        assert report.position == session.position
        if report.kernels_us is not None:
            assert report.pieces_us["kv"] > 0 and report.pieces_us["head"] > 0


def test_the_report_names_its_program(engine):
    engine.barriers, engine.fusion = "every", True
    report = engine.measure_bubbles(99)
    assert (report.position, report.barriers, report.barrier_count) == (99, "every", report.dispatches - 1)
    assert report.passes and report.queued_gap_us == engine.queued_gap_us
    if report.pieces_us is not None:  # medians, each its own: one good try
        tries = itertools.chain([report], (engine.measure_bubbles(99) for _ in range(20)))
        assert any(sum(one.pieces_us.values()) == pytest.approx(one.kernels_us, rel=0.25) for one in tries)
    engine.fusion = False
    assert engine.measure_bubbles(99).passes == ()
    with pytest.raises(EngineError, match="128"):
        engine.measure_bubbles(128)


def test_bytes_are_those_of_the_file(tmp_path):
    path = tmp_path / "q8.gguf"
    write_tiny_llama(path, types={"*": gguf.GGMLQuantizationType.Q8_0}, tied=False, layers=3, hidden=64, kv_heads=2)
    in_file = {tensor.name: int(tensor.n_bytes) for tensor in gguf.GGUFReader(path).tensors}
    with Engine.open(path, context=128) as opened:
        by_tensor = opened.bytes_by_tensor()
        assert by_tensor.keys() == in_file.keys()
        assert by_tensor.pop("token_embd.weight") == in_file.pop("token_embd.weight") // 320  # one row of the table
        for name, size in in_file.items():
            assert size <= by_tensor[name] <= 1.1 * size + 256, name  # the device's layout pads
        first, later = opened.token_bytes(0), opened.token_bytes(99)
        assert first["head"] == by_tensor["output.weight"]
        assert first["weights"] + first["head"] == sum(opened.bytes_by_tensor().values())
        assert first["kv"] == 3 * 2 * 2 * 16 * 2  # layers, K and V, KV heads, head size, float16
        assert later["kv"] == 100 * first["kv"]
        assert later["total"] == sum(value for part, value in later.items() if part != "total")


def test_a_tied_table_is_read_as_the_head(engine):
    sizes = engine.token_bytes(0)
    assert engine.bytes_by_tensor()["token_embd.weight"] == sizes["head"] + sizes["head"] // 320


def test_gap_probe_and_hint(engine):
    assert 0 < engine.queued_gap_us < 1e6
    assert engine.queued_gap_us == engine.queued_gap_us  # measured once
    assert engine.probe_gb_s > 0.05
    hint = dataclasses.asdict(engine.measure_submit_hint(10))
    assert hint["with_us"] > 0 and hint["without_us"] > 0 and hint["error_us"] >= 0
