"""The engine on tiny random models against a float64 forward pass, and what its switches must not change."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest

from engine import FUSION_PASSES, MODES, Cancelled, Engine, EngineError, Sampling
from engine.text.model_text import ModelText
from engine.weights.gguf import GGUFFile
from tests.engine import llama_reference
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.tolerance import tolerance
from tests.flipping import generate

GREEDY = Sampling(temperature=0.0)


@pytest.fixture(scope="module", params=[None, False], ids=["", "gpu-kernels"])
def engine(tiny_path, request):
    """With this device's own kernels, then with those for GPUs, which a software device can run too."""
    with Engine.open(tiny_path, fusion=FUSION_PASSES, row_kernels=request.param) as opened:
        yield opened


def take_mode(engine: Engine, mode: str) -> None:
    if mode in engine.refused_modes:
        pytest.skip(engine.refused_modes[mode])
    engine.mode = mode


def random_ids(count: int, vocab: int = 320, seed: int | None = None) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab, count).tolist()


@pytest.mark.parametrize("count", [1, 15, 16, 17, 50])
def test_prefill_logits(engine, tiny_path, count):
    ids = random_ids(count)
    expected = llama_reference.logits(tiny_path, ids, np.float16)[-1]
    assert np.abs(engine.session().prefill(ids) - expected).max() < tolerance(engine) * np.abs(expected).max()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("barriers", ["every", "needed"])
@pytest.mark.parametrize("fusion", [True, False])
def test_decode_follows_the_reference_token_by_token(engine, tiny_path, mode, barriers, fusion):
    take_mode(engine, mode)
    engine.mode, engine.barriers, engine.fusion = mode, barriers, fusion
    prompt = random_ids(9)
    session = engine.session()
    session.prefill(prompt)
    ids = [token.id for token in session.generate(GREEDY, max_tokens=12, ignore_eos=True)]
    expected = llama_reference.logits(tiny_path, prompt + ids, np.float16)[len(prompt) - 1 :]
    for index, id in enumerate(ids):
        best = expected[index].max()
        assert expected[index][id] > best - tolerance(engine) * np.abs(expected[index]).max()
    assert session.ids == prompt + ids[:-1]


@pytest.mark.parametrize("options", [
    {"tied": False, "rope_freqs": True, "theta": 5e5},
    {"heads": 6, "kv_heads": 1, "hidden": 96, "ffn": 160, "vocab": 333},
])  # fmt: skip
def test_other_shapes(tmp_path, options):
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, **options)
    ids = random_ids(21)
    expected = llama_reference.logits(path, ids, np.float16)
    with Engine.open(path) as opened:
        session = opened.session()
        assert np.abs(session.prefill(ids[:20]) - expected[19]).max() < tolerance(opened) * np.abs(expected).max()


@pytest.mark.parametrize("sampling", [GREEDY, Sampling(temperature=0.8, top_p=0.95, seed=7)])
def test_flipping_the_switches_between_tokens_changes_no_id(engine, sampling):
    prompt = random_ids(5, seed=3)
    engine.mode, engine.barriers, engine.fusion = "reuse", "needed", True
    plain = generate(engine, prompt, sampling, 1000)
    flipped = generate(engine, prompt, sampling, 1000, random.Random(11))
    assert flipped.flips > 50 and {mode for mode, _, _ in flipped.settings} == set(engine.modes)
    assert plain.ids == flipped.ids


def test_fusion_changes_no_bit(engine):
    prompt = random_ids(30)
    engine.mode, engine.barriers = "reuse", "needed"
    ids = {}
    for fusion in (FUSION_PASSES, (), *((name,) for name in FUSION_PASSES)):
        engine.fusion = fusion
        ids[fusion] = generate(engine, prompt, Sampling(temperature=1.5, top_p=1.0, seed=5), 200).ids
    assert all(one == ids[()] for one in ids.values())


@pytest.mark.parametrize(("mode", "ring"), [("reuse", 1), ("pipelined", 4)])
def test_recorded_once_a_bucket(tmp_path, mode, ring):
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, layers=1)
    with Engine.open(path, context=1536, mode=mode, fusion=FUSION_PASSES) as opened:
        opened.stamp_every = 0
        builds, session = opened.builds, opened.session()

        def counted() -> tuple[int, int]:
            return opened.builds - builds, opened.recordings

        def reply(prompt_tokens: int, count: int) -> list[bool]:
            session.prefill(random_ids(prompt_tokens))
            tokens = session.generate(GREEDY, count, ignore_eos=True)
            return [token.timing.rerecorded for token in tokens]

        rerecorded = reply(500, 1037)  # fed at positions 500 to 1535: three buckets of 512
        assert counted() == (3, 3 * ring)
        assert [i for i, yes in enumerate(rerecorded[1:], 1) if yes] == [1, 13, 525]
        assert session.finish_reason == "length"
        reply(40, 20)
        assert counted() == (3, 3 * ring)  # the first bucket was still there
        for opened.barriers in ("every", "needed", "every", "needed"):
            reply(40, 20)
        assert counted() == (4, 4 * ring)  # the other policy needed its own, once


def test_rerecord_builds_every_token(engine):
    engine.mode, engine.barriers, engine.fusion = "rerecord", "needed", True
    before = engine.builds, engine.recordings
    generated = generate(engine, random_ids(3), GREEDY, 20)
    assert len(generated.ids) == 20
    assert (engine.builds - before[0], engine.recordings - before[1]) == (19, 19)


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


def test_seeds_fix_the_ids(engine):
    prompt = random_ids(8)
    ids = [generate(engine, prompt, Sampling(temperature=1.2, top_p=1.0, seed=seed), 40).ids for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]


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
    end = next(i for i, id in enumerate(whole) if i > 4 and whole.index(id) == i)
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


def test_timing_accounts_for_the_token(engine):
    engine.mode, engine.barriers, engine.fusion = "rerecord", "needed", True
    session = engine.session()
    session.prefill(random_ids(4))
    engine.request_stamps()
    timings = [token.timing for token in session.generate(GREEDY, 20, ignore_eos=True)]
    for timing in timings[1:]:
        assert timing.gpu_total_us > 0 and timing.gpu_idle_before_us > 0 and timing.record_us > 0
        steps = ("build", "record", "patch", "submit", "wait", "readback")
        assert sum(getattr(timing, f"{step}_wall_us") for step in steps) <= timing.period_us
        assert timing.wait_wall_us + timing.submit_wall_us >= timing.gpu_total_us * 0.5
        assert timing.dispatches > timing.barrier_count > 0
    stamped = [timing for timing in timings if timing.measured_by == "twin"]
    assert [timing.index for timing in stamped] == [1, 15]
    for timing in stamped:
        assert 0 < timing.kernels_us < timing.gpu_total_us
        assert 0 < timing.bubbles_us < timing.gpu_total_us
        assert timing.kernels_us + timing.bubbles_us <= timing.gpu_total_us * 1.01
        assert abs(sum(timing.pieces_us.values()) - timing.kernels_us) < 1
    assert all(timing.kernels_us is None for timing in timings if timing.measured_by == "clean")


def test_barriers_are_counted_and_needed_has_fewer(engine):
    engine.mode, engine.fusion = "reuse", False  # fused, every op depends on the one before it
    counts = {}
    for engine.barriers in ("every", "needed"):
        session = engine.session()
        session.prefill(random_ids(4))
        timing = list(session.generate(GREEDY, 3, ignore_eos=True))[-1].timing
        counts[engine.barriers] = (timing.dispatches, timing.barrier_count)
    assert counts["every"][1] == counts["every"][0] - 1
    assert counts["needed"][0] == counts["every"][0] and counts["needed"][1] < counts["every"][1]


def test_prompt_chunks_grow_while_they_are_fast_and_shrink_where_they_are_slow(engine):
    prefill = engine._runtime.prefill
    prefill.chunk_tokens = 16
    sizes = []
    engine.session().prefill(random_ids(600), progress=lambda done, total: sizes.append(done))
    assert sizes[0] == 16 and prefill.chunk_tokens > 16
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


def test_an_older_session_says_that_a_newer_one_has_the_cache(engine):
    older = engine.session()
    older.prefill([5, 6, 7])
    reply = older.generate(GREEDY, max_tokens=30, ignore_eos=True)
    next(reply)
    newer = engine.session()
    newer.prefill([8, 9])
    assert list(reply) == []
    with pytest.raises(EngineError, match="a newer session"):
        older.prefill([5, 6, 7])
    with pytest.raises(EngineError, match="a newer session"):
        older.generate(GREEDY)
    assert newer.ids == [8, 9]


@pytest.mark.parametrize("mode", MODES)
def test_a_closed_engine_says_so_and_keeps_its_figures(tiny_path, mode):
    engine = Engine.open(tiny_path, context=64, mode=mode, row_kernels=False if mode == "persistent" else None)
    session = engine.session()
    session.prefill([5, 6, 7])
    reply = session.generate(GREEDY, max_tokens=30, ignore_eos=True)
    for _ in range(4):
        next(reply)
    engine.close()
    engine.close()
    assert list(reply) == []
    assert session.position >= 6
    assert engine.recordings > 0
    for call in (
        lambda: session.prefill([1]),
        lambda: session.generate(GREEDY),
        engine.session,
        engine.request_stamps,
        engine.measure_bubbles,
        engine.measure_submit_hint,
        lambda: engine.probe_gb_s,
        lambda: engine.queued_gap_us,
    ):
        with pytest.raises(EngineError, match="the engine is closed"):
            call()


def test_a_reply_in_another_thread_is_not_cut_off_by_close(tiny_path):
    with Engine.open(tiny_path, context=512) as engine:
        session = engine.session()
        session.prefill([5, 6, 7])
        inside, go_on = threading.Event(), threading.Event()
        settings = session._settings

        def wait():
            inside.set()
            go_on.wait(10)
            return settings()

        session._settings = wait
        ids = []
        reply = session.generate(GREEDY, max_tokens=3, ignore_eos=True)
        thread = threading.Thread(target=lambda: ids.extend(token.id for token in reply))
        thread.start()
        inside.wait(10)
        with pytest.raises(EngineError, match="in another thread"):
            engine.close()
        go_on.set()
        thread.join(10)
        assert len(ids) == 3


@pytest.mark.parametrize("row_kernels", [None, False], ids=["", "gpu-kernels"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_a_damaged_model(tiny_path, tmp_path, value, row_kernels):
    data = bytearray(tiny_path.read_bytes())
    with GGUFFile.open(tiny_path) as file:
        offset = file.tensors["output_norm.weight"].offset
    data[offset : offset + 4] = np.float32(value).tobytes()
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(data)
    with Engine.open(damaged, context=64, row_kernels=row_kernels) as engine:
        session = engine.session()
        with pytest.raises(EngineError, match="damaged: download it again"):
            session.prefill([5, 6, 7])
        with pytest.raises(EngineError, match="needs a prefill"):
            session.generate(GREEDY)
        assert session.position == 0


def test_a_model_that_cannot_take_the_prompts_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    path, stages = write_tiny_llama(tmp_path / "mute.gguf", tokenizer=False), list[str]()
    with pytest.raises(EngineError, match=r"^mute.gguf has no tokenizer"):
        Engine.open(path, takes="text", progress=lambda stage, done, total: stages.append(stage))
    assert not stages
