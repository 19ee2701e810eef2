"""A conversation on the device: what a prefill keeps, and where a reply ends."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from engine import MODES, Cancelled, Engine, EngineError
from engine.text.model_text import ModelText
from tests.engine.tiny_runs import GREEDY, random_ids, take_mode


def test_a_kept_prefix_changes_nothing(engine):
    ids = random_ids(45)
    whole = engine.session().prefill(ids)
    session = engine.session()
    session.prefill(ids[:23])
    assert session.prefill_stats.tokens == 23
    logits = session.prefill(ids)
    assert (session.prefill_stats.kept, session.prefill_stats.tokens) == (23, 22)
    assert np.array_equal(logits, whole)
    other = [*ids[:10], (ids[10] + 1) % 320, *ids[11:20]]
    session.prefill(other)
    assert session.prefill_stats.kept == 10 and session.ids == other
    assert np.array_equal(session.prefill(ids), whole)
    assert np.array_equal(session.prefill(ids), whole)  # all of it kept but the last id
    assert session.prefill_stats.tokens == 1


def test_a_reply_continues_from_its_own_tokens(engine):
    engine.mode, engine.barriers, engine.fusion = "reuse", "needed", True
    prompt = random_ids(12)
    session = engine.session()
    session.prefill(prompt)
    reply = [token.id for token in session.generate(GREEDY, 30, ignore_eos=True)]
    session.prefill(prompt + reply + [7])
    assert session.prefill_stats.kept == len(prompt) + 29  # the last reply id was never fed
    assert session.prefill_stats.tokens == 2


def test_cancel_in_prefill_keeps_what_was_fed(engine):
    cancel = threading.Event()
    session = engine.session()
    ids = random_ids(900)
    with pytest.raises(Cancelled):
        session.prefill(ids, cancel=cancel, progress=lambda done, total: done >= 64 and cancel.set())
    assert 64 <= session.position < 600  # the chunk in which it was set is the last
    with pytest.raises(EngineError, match="prefill"):
        session.generate(GREEDY)
    cancel.clear()
    session.prefill(ids, cancel=cancel)
    assert session.prefill_stats.kept >= 64


@pytest.mark.parametrize(("mode", "in_flight"), [("rerecord", 0), ("overlap", 0), ("reuse", 0), ("pipelined", 3)])
def test_cancel_keeps_the_tokens_in_flight_and_no_more(engine, mode, in_flight):
    engine.mode, engine.barriers, engine.fusion = mode, "needed", True
    cancel, prompt = threading.Event(), random_ids(4)
    session = engine.session()
    session._text = ModelText()  # with one, a token may wait for the rest of its last character
    session.prefill(prompt)
    ids = []
    for token in session.generate(GREEDY, 100, ignore_eos=True, cancel=cancel):
        ids.append(token.id)
        if len(ids) == 5:
            cancel.set()
    assert len(ids) == 5 + in_flight and session.finish_reason == "cancelled"
    assert session.ids == prompt + ids[:-1]


def test_a_dropped_reply_leaves_the_cache_as_it_says(engine):
    engine.mode, engine.barriers, engine.fusion = "pipelined", "needed", True
    prompt = random_ids(4)
    session = engine.session()
    session.prefill(prompt)
    whole = [token.id for token in session.generate(GREEDY, 30, ignore_eos=True)]
    session.prefill(prompt)
    reply = session.generate(GREEDY, 30, ignore_eos=True)
    for _ in range(7):
        next(reply)
    reply.close()
    assert len(session.ids) > len(prompt) + 6 and session.ids == (prompt + whole)[: len(session.ids)]
    session.prefill(prompt + whole[:25])
    assert session.prefill_stats.kept >= len(prompt) + 6
    again = [token.id for token in session.generate(GREEDY, 5, ignore_eos=True)]
    assert again == whole[25:30]


def test_an_end_token_stops_what_is_in_flight(engine):
    engine.barriers, engine.fusion = "needed", True
    prompt = random_ids(6)
    session = engine.session()
    session.prefill(prompt)
    engine.mode = "reuse"
    whole = [token.id for token in session.generate(GREEDY, 40, ignore_eos=True)]
    end = max(whole.index(id) for id in whole)  # as late as a reply allows that may repeat itself
    session._stop_ids = frozenset({whole[end]})
    modes = engine.modes
    for engine.mode in modes:
        session.prefill(prompt)
        ids = [token.id for token in session.generate(GREEDY, 40)]
        assert ids == whole[:end] and session.finish_reason == "stop"
        assert session.ids == prompt + ids  # the end token was never fed, nor was anything after it


def test_the_reply_ends_where_the_context_ends(tiny_path):
    with Engine.open(tiny_path, context=64) as opened:
        session = opened.session()
        session.prefill(random_ids(60))
        ids = list(session.generate(GREEDY, 100, ignore_eos=True))
        assert len(ids) == 5 and session.finish_reason == "context" and session.position == 64
        with pytest.raises(EngineError, match=r"65 tokens.*64"):
            session.prefill(random_ids(65))


def test_prompt_chunks_grow_while_they_are_fast_and_shrink_where_they_are_slow(engine):
    prefill = engine._runtime.prefill
    prefill.chunk_tokens = 16
    sizes = []
    engine.session().prefill(random_ids(600), progress=lambda done, total: sizes.append(done))
    assert sizes[0] == 16 and max(np.diff(sizes)) > 16
    for seconds, following in ((0.09, 32), (0.02, 64), (0.2, 16)):
        prefill.chunk_tokens = 16
        prefill._adapt(16, seconds)
        assert prefill.chunk_tokens == min(following, prefill._most_tokens)
    prefill.chunk_tokens = 32
    prefill._adapt(32, 0.4)
    assert prefill.chunk_tokens == 16
    prefill._adapt(3, 0.05)  # a prompt's short rest says nothing
    assert prefill.chunk_tokens == 16
    for _ in range(9):
        prefill._adapt(prefill.chunk_tokens, 5.0)
    assert prefill.chunk_tokens == 16  # with fewer, the matrix kernels take as long a chunk


@pytest.mark.parametrize("mode", MODES)
def test_a_prefill_ends_a_reply_that_still_runs(engine, mode):
    take_mode(engine, mode)
    session = engine.session()
    session.prefill([5, 6, 7])
    expected = [token.id for token in session.generate(GREEDY, max_tokens=9, ignore_eos=True)]
    session = engine.session()
    session.prefill([5, 6, 7])
    reply = session.generate(GREEDY, max_tokens=30, ignore_eos=True)
    for _ in range(4):
        next(reply)
    session.prefill([5, 6, 7])
    assert list(reply) == []
    assert [token.id for token in session.generate(GREEDY, max_tokens=9, ignore_eos=True)] == expected
