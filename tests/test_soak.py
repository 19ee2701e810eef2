"""Long runs on the default model, through ``make soak`` only: bits across flips, and memory over 10,000 tokens."""

from __future__ import annotations

import gc
import itertools
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from engine import Engine, Sampling
from tests.flipping import generate
from zincchat.catalogue import CATALOGUE, DEFAULT_MODEL

pytestmark = pytest.mark.soak

TOKENS = 1_000
SEED = 20261129
# Full before token 1,000, so that a software device, whose memory is the host's, has touched its whole KV cache.
MEMORY_CONTEXT = 768
MEMORY_START, MEMORY_END = 1_000, 10_000
MEMORY_GROWTH_BYTES = 10_000_000
FLIP_EVERY = 100


def model_path() -> Path:
    """The default model; a soak without it is a failure, not a skip."""
    path = Path(os.environ.get("ZINCCHAT_TEST_MODEL") or CATALOGUE[DEFAULT_MODEL].path)
    assert path.is_file(), f"{path} is not there: run 'make setup' first"
    return path


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine.open(model_path(), context=1536) as opened:
        yield opened


@pytest.mark.parametrize(
    "sampling",
    [Sampling(temperature=0.0), Sampling(temperature=0.8, seed=7)],
    ids=["greedy", "temperature 0.8"],
)
def test_flips_change_no_id(engine: Engine, sampling: Sampling, capsys: pytest.CaptureFixture[str]) -> None:
    prompt = engine.render([{"role": "user", "content": "Tell me a long story about a lighthouse."}])
    engine.mode, engine.barriers = "reuse", "needed"
    started = time.perf_counter()
    steady = generate(engine, prompt, sampling, TOKENS)
    seconds = time.perf_counter() - started
    assert steady.flips == 0
    flipped = generate(engine, prompt, sampling, TOKENS, random.Random(SEED))
    with capsys.disabled():
        print(
            f"\n{TOKENS} tokens, temperature {sampling.temperature}: {flipped.flips} flips, "
            f"{'equal' if flipped.ids == steady.ids else 'DIFFERENT'}; {TOKENS / seconds:.1f} tok/s without flips"
        )
    assert len(steady.ids) == TOKENS
    assert flipped.settings == set(itertools.product(engine.modes, engine.barrier_policies, (True, False)))
    assert flipped.ids == steady.ids


def test_memory_does_not_grow(capsys: pytest.CaptureFixture[str]) -> None:
    with Engine.open(model_path(), context=MEMORY_CONTEXT) as engine:
        rss_bytes = dict(_resident_bytes(engine, (MEMORY_START, MEMORY_END)))
    growth_bytes = rss_bytes[MEMORY_END] - rss_bytes[MEMORY_START]
    with capsys.disabled():
        print(
            f"\nresident memory: {rss_bytes[MEMORY_START] / 1e6:.1f} MB at token {MEMORY_START:,}, "
            f"{growth_bytes / 1e6:+.1f} MB by token {MEMORY_END:,}"
        )
    assert growth_bytes < MEMORY_GROWTH_BYTES


def _resident_bytes(engine: Engine, at: tuple[int, ...]) -> Iterator[tuple[int, int]]:
    """The process's RSS after so many tokens, in sessions that each fill the context, the switches going round."""
    process = psutil.Process()
    settings = itertools.cycle(itertools.product(engine.modes, engine.barrier_policies))
    count = 0
    while True:
        session = engine.session()
        session.prefill([1])
        before = count
        for _token in session.generate(
            Sampling(temperature=0.8, seed=count), max_tokens=engine.context, ignore_eos=True
        ):
            count += 1
            if count % FLIP_EVERY == 0:
                engine.mode, engine.barriers = next(settings)
            if count in at:
                gc.collect()
                yield count, process.memory_info().rss
            if count >= max(at):
                return
        assert count > before, "a session gave no token"
