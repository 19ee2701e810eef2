"""The engine on tiny random models against a float64 forward pass, and what its switches must not change."""

from __future__ import annotations

import random
import statistics

import pytest

from engine import BARRIERS, FUSION_PASSES, MODES, Engine, Sampling
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.tiny_runs import GREEDY, random_ids, take_mode
from tests.engine.tolerance import assert_greedy, assert_logits
from tests.flipping import generate


@pytest.mark.parametrize("count", [1, 15, 16, 17, 50])
def test_prefill_logits(engine, tiny_path, count):
    ids = random_ids(count)
    assert_logits(engine, tiny_path, ids, [engine.session().prefill(ids)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("barriers", BARRIERS)
@pytest.mark.parametrize("fusion", [True, False])
def test_decode_follows_the_reference_token_by_token(engine, tiny_path, mode, barriers, fusion):
    take_mode(engine, mode)
    engine.mode, engine.barriers, engine.fusion = mode, barriers, fusion
    prompt = random_ids(9)
    session = engine.session()
    session.prefill(prompt)
    ids = [token.id for token in session.generate(GREEDY, max_tokens=12, ignore_eos=True)]
    assert_greedy(engine, tiny_path, prompt, ids)
    assert session.ids == prompt + ids[:-1]


@pytest.mark.parametrize("options", [
    {"tied": False, "rope_freqs": True, "theta": 5e5},
    {"heads": 6, "kv_heads": 1, "hidden": 96, "ffn": 160, "vocab": 333},
])  # fmt: skip
def test_other_shapes(tmp_path, options):
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, **options)
    ids = random_ids(21)
    with Engine.open(path) as opened:
        assert_logits(opened, path, ids, [opened.session().prefill(ids)])


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
    with Engine.open(path, context=1536, mode=mode, fusion=FUSION_PASSES, barriers="needed") as opened:
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


def test_seeds_fix_the_ids(engine):
    prompt = random_ids(8)
    ids = [generate(engine, prompt, Sampling(temperature=1.2, top_p=1.0, seed=seed), 40).ids for seed in (1, 1, 2)]
    assert ids[0] == ids[1] != ids[2]


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
        # the GPU works from the submission on: while the host is in submit and wait, or between them, in no step
        before_and_after = sum(getattr(timing, f"{step}_wall_us") for step in ("build", "record", "patch", "readback"))
        assert timing.gpu_total_us + before_and_after <= timing.period_us * 1.01
        assert timing.dispatches > timing.barrier_count > 0
    # of all tokens, since the host may be kept from any one of them
    shares = [(timing.wait_wall_us + timing.submit_wall_us) / timing.gpu_total_us for timing in timings[1:]]
    assert statistics.median(shares) >= 0.5
    stamped = [timing for timing in timings if timing.measured_by == "twin"]
    assert [timing.index for timing in stamped] == [1, 15]
    assert [timing.position for timing in timings] == list(range(4, 24))
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
