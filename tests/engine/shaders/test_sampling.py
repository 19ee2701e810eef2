"""The sampling kernels against a float64 reference, in the build for software devices and in that for GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from engine.decode.sampling import Sampling
from engine.decode.state import (
    HISTORY_IDS,
    NO_ID,
    STATE_BYTES,
    STATE_HISTORY,
    STATE_POSITION,
    STATE_TOKEN,
    STEP_BYTES,
    initial_state,
    pack_step,
)
from engine.program.op import Op
from engine.program.sample import required_kernels, sample, scratch_bytes
from engine.vulkan.memory import Slice
from tests.engine.gpu import POISON, Gpu
from tests.engine.shaders.sampling_reference import FAR, choose, philox4x32, uniform

Floats = npt.NDArray[np.float32]
POISON_WORD = int.from_bytes(bytes([POISON] * 4), "little")
GREEDY = Sampling(temperature=0.0)
OFF = Sampling(temperature=1.0, top_p=1.0)


class Sampler:
    """Buffers for one vocabulary after another, and the kernels."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.logits = gpu.memory.allocate(262144 * 4)
        self.scratch = gpu.memory.allocate(scratch_bytes(262144))
        self.step = gpu.memory.allocate(STEP_BYTES, "upload")
        self.state = gpu.memory.allocate(STATE_BYTES)
        self.readback = gpu.memory.allocate(64, "readback")
        self.vocab = 0

    def load(self, logits: Floats) -> None:
        self.vocab = logits.size
        self.write(self.scratch, np.full(scratch_bytes(self.vocab), POISON, np.uint8))
        self.write(self.logits, np.concatenate([logits, np.full(8, np.inf, np.float32)])[:262144])

    def write(self, target: Slice, data: npt.NDArray[Any] | bytes) -> None:
        self.gpu.memory.write(target, np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data)
        self.gpu.memory.flush()

    def ops(self, readback: Slice, advance: int) -> list[Op]:
        scratch = self.scratch.part(0, scratch_bytes(self.vocab))
        return sample(self.gpu.kernels, self.logits, self.vocab, self.step, self.state, readback, scratch, advance)

    def start(self, sampling: Sampling, history: list[int]) -> None:
        self.write(self.step, pack_step(sampling))
        self.write(self.state, initial_state(len(history), 7, history))

    def choose_at(self, sampling: Sampling, position: int) -> int:
        """The id chosen at an absolute position, with an empty history."""
        self.start(sampling, [])
        self.write(self.state, initial_state(position, 7, []))
        self.gpu.run(*self.ops(self.readback, 0))
        return int(self.gpu.read(self.readback, np.uint32)[0])

    def choose(self, sampling: Sampling, history: list[int], advance: int = 0) -> int:
        """The id chosen after ``history``, ``advance`` places further on."""
        self.start(sampling, history)
        self.write(self.readback, np.full(64, POISON, np.uint8))
        self.gpu.run(*self.ops(self.readback, advance))
        return int(self.gpu.read(self.readback, np.uint32)[0])

    def draw(self, sampling: Sampling, history: list[int], count: int) -> list[int]:
        """``count`` ids, each at the position after the one before, from the same logits."""
        self.start(sampling, history)
        slots = self.gpu.memory.allocate(count * 16, "readback")
        ops = [op for i in range(count) for op in self.ops(slots.part(i * 16, 16), int(i > 0))]
        self.gpu.run(*ops)
        return [int(token) for token in self.gpu.read(slots, np.uint32)[::4]]


@pytest.fixture(scope="module", params=["software build", "GPU build"])
def sampler(request: pytest.FixtureRequest) -> Iterator[Sampler]:
    with Gpu() as gpu:
        if request.param == "GPU build":
            gpu.kernels.base.pop("CPU_DEVICE", None)
        elif not gpu.device.is_cpu:
            pytest.skip("the software build is for software devices")
        gpu.kernels.prepare(required_kernels(gpu.kernels), lambda: None)
        yield Sampler(gpu)


def test_reference_philox_gives_the_published_vectors() -> None:
    # Random123, kat_vectors
    full = 0xFFFFFFFF
    assert philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((full,) * 4, (full, full)) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox4x32((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == (
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    )


@pytest.mark.parametrize("seed", [0, 1, 2**32, 0x299F31D0A4093822, 2**64 - 1])
def test_equal_logits_show_the_random_bits(sampler: Sampler, seed: int) -> None:
    sampler.load(np.zeros(65536, np.float32))
    for position in (0, 1, 63, 64, 4095):
        token = sampler.choose(Sampling(temperature=1.0, top_p=1.0, seed=seed), [0] * position)
        assert token == int(uniform(seed, position) * 65536)


def test_a_draw_on_a_boundary_belongs_to_the_next_id(sampler: Sampler) -> None:
    """Positions at which seed 0 draws 0, the largest value there is, and values that end in many zero bits."""
    sampler.load(np.zeros(65536, np.float32))
    for position in (412, 2735, 4373, 150078, 14883995, 38471471):
        assert sampler.choose_at(OFF, position) == int(uniform(0, position) * 65536)
    assert uniform(0, 14883995) == 0
    assert uniform(0, 38471471) == 1 - 2**-24
    logits = np.full(5000, -np.inf, np.float32)
    logits[[3, 2000, 4000]] = 1
    sampler.load(logits)
    assert sampler.choose_at(OFF, 14883995) == 3  # not an id of no weight before it
    assert sampler.choose_at(OFF, 38471471) == 4000


def random_case(rng: np.random.Generator, vocab: int) -> tuple[Floats, list[int], Sampling]:
    logits = rng.standard_normal(vocab) * rng.choice([0.5, 2.0, 4.0])
    heads = int(rng.integers(1, 400))
    logits[rng.integers(0, vocab, heads)] += rng.uniform(0, 14, heads)  # as a language model's: a few stand out
    history = [int(token) for token in rng.integers(0, vocab, int(rng.integers(0, 150)))]
    history += [int(token) for token in np.argsort(-logits)[: int(rng.integers(0, 8))]] * 2
    sampling = Sampling(
        temperature=float(rng.choice([0.0, 0.2, 0.7, 1.0, 2.5], p=[0.1, 0.2, 0.3, 0.3, 0.1])),
        top_k=int(
            rng.choice([0, 2, 5, 40, 300, vocab // 2, vocab, 2 * vocab], p=[0.3, 0.1, 0.1, 0.2, 0.1, 0.1, 0.05, 0.05])
        ),
        top_p=float(rng.choice([1.0, 0.95, 0.8, 0.3, 0.999])),
        min_p=float(rng.choice([0.0, 0.05, 0.5, 1e-4], p=[0.55, 0.2, 0.1, 0.15])),
        repeat_penalty=float(rng.choice([1.0, 1.1, 1.8, 0.7])),
        seed=int(rng.integers(0, 2**64, dtype=np.uint64)),
    )
    return logits.astype(np.float32), history, sampling


@pytest.mark.parametrize(
    ("vocab", "count"), [(320, 90), (1023, 60), (1025, 60), (32003, 50), (49152, 50), (151936, 12), (262144, 8)]
)
def test_ids_are_the_reference_ids(sampler: Sampler, vocab: int, count: int) -> None:
    rng = np.random.default_rng(vocab)
    certain = 0
    for _ in range(count):
        logits, history, sampling = random_case(rng, vocab)
        advance = int(rng.integers(0, 2))
        sampler.load(logits)
        token = sampler.choose(sampling, history, advance)
        expected = choose(logits, history, sampling, len(history) + advance)
        if expected.certain:
            certain += 1
            assert token == expected.token, (sampling, len(history), advance)
        else:
            assert expected.distance(token) < FAR, (sampling, token, expected.token)
    assert certain >= count * 0.75  # else the comparison says little


def test_greedy_takes_the_largest_and_of_equals_the_lowest(sampler: Sampler) -> None:
    rng = np.random.default_rng(3)
    for vocab in (320, 1024, 5001, 49152):
        logits = rng.integers(-3, 4, vocab).astype(np.float32)
        sampler.load(logits)
        assert sampler.choose(GREEDY, []) == int(np.argmax(logits))
        for place in (0, 31, vocab // 2, vocab - 1):
            logits[:] = -1e30
            logits[place] = -5e29
            sampler.load(logits)
            assert sampler.choose(GREEDY, []) == place


def test_greedy_counts_the_two_zeros_as_equal(sampler: Sampler) -> None:
    logits = np.full(2000, -1, np.float32)
    logits[[900, 1900]] = -0.0, 0.0
    sampler.load(logits)
    assert sampler.choose(GREEDY, []) == 900


def test_penalty_is_applied_once_to_ids_of_the_last_64_alone(sampler: Sampler) -> None:
    logits = np.full(1500, -4, np.float32)
    logits[[10, 20, 1400]] = 8, 7, 6
    sampler.load(logits)
    half = Sampling(temperature=0.0, repeat_penalty=1.25)  # 8 / 1.25 = 6.4; applied twice it is 5.12
    assert sampler.choose(half, [10, 10, 10]) == 20
    assert sampler.choose(half, [10, 20]) == 10
    assert sampler.choose(half, [10] + [5] * 63) == 20
    assert sampler.choose(half, [10] + [5] * 64) == 10  # 65 ids ago
    logits = np.full(1500, -4, np.float32)
    logits[3] = -3.9
    sampler.load(logits)
    assert sampler.choose(half, [3]) == 0  # a negative logit falls too
    assert sampler.choose(Sampling(temperature=0.0, repeat_penalty=0.5), [3, 9]) == 3  # below 1 it favours


def test_equal_logits_are_cut_at_the_lowest_ids(sampler: Sampler) -> None:
    """Ties at the cut, few enough to sort and too many to."""
    for vocab, top_k in ((320, 100), (5001, 1000), (49152, 12345)):
        logits = np.zeros(vocab, np.float32)
        logits[[vocab - 1, vocab - 2]] = 0.5
        sampler.load(logits)
        allowed = {*range(top_k - 2), vocab - 1, vocab - 2}
        tokens = sampler.draw(Sampling(temperature=1.0, top_p=1.0, top_k=top_k, seed=5), [], 64)
        assert set(tokens) <= allowed
        assert max(set(tokens) - {vocab - 1, vocab - 2}) > top_k * 0.9
        part = Sampling(temperature=1.0, top_p=0.25, seed=5)
        for position, token in enumerate(sampler.draw(part, [], 64)):
            expected = choose(logits, [], part, position)
            assert token == expected.token or expected.distance(token) < FAR


def test_filters_that_leave_one(sampler: Sampler) -> None:
    logits = np.random.default_rng(4).standard_normal(3000).astype(np.float32)
    logits[[2100, 2900]] = logits.max()
    sampler.load(logits)
    best = int(np.argmax(logits))
    hot = 100.0
    assert {*sampler.draw(Sampling(temperature=hot, top_k=1, top_p=1.0), [], 16)} == {best}
    assert {*sampler.draw(Sampling(temperature=hot, top_p=0.0), [], 16)} == {best}
    assert {*sampler.draw(Sampling(temperature=hot, top_p=1e-30), [], 16)} == {best}
    assert {*sampler.draw(Sampling(temperature=hot, top_p=1.0, min_p=1.0), [], 64)} == {
        *np.flatnonzero(logits == logits.max())
    }
    assert {*sampler.draw(Sampling(temperature=1e-6, top_p=1.0), [], 64)} == {*np.flatnonzero(logits == logits.max())}


@pytest.mark.parametrize("sampling", [GREEDY, OFF, Sampling(), Sampling(top_k=3, min_p=0.1)])
def test_infinite_and_missing_logits(sampler: Sampler, sampling: Sampling) -> None:
    vocab = 1300
    logits = np.full(vocab, -np.inf, np.float32)
    logits[::3] = np.nan
    logits[[4, 1201]] = 1e4
    logits[7] = 1e4 - 1
    sampler.load(logits)
    tokens = sampler.draw(sampling, [], 12)
    assert tokens == [choose(logits, [], sampling, position).token for position in range(12)]
    assert set(tokens) <= {4, 7, 1201}
    logits[[100, 1210]] = np.inf
    sampler.load(logits)
    assert set(sampler.draw(sampling, [], 12)) <= {100, 1210}
    sampler.load(np.where(np.isnan(logits), np.nan, -np.inf).astype(np.float32))
    assert not np.isnan(logits[sampler.draw(sampling, [], 12)]).any()
    sampler.load(np.full(vocab, np.nan, np.float32))
    assert sampler.draw(sampling, [], 2) == [0, 0]


def test_draws_follow_the_distribution(sampler: Sampler) -> None:
    """Chi-square over 2,000 draws at successive positions; seeded, so it passes always or never."""
    logits = np.random.default_rng(6).standard_normal(400).astype(np.float32)
    logits[::10] += 3
    sampling = Sampling(temperature=0.8, top_p=1.0, top_k=40, seed=11)
    sampler.load(logits)
    counts = np.bincount(sampler.draw(sampling, [], 2000), minlength=400)
    kept = np.sort(np.argsort(-logits)[:40])
    weights = np.exp(logits[kept].astype(np.float64) / 0.8)
    expected = 2000 * weights / weights.sum()
    assert counts.sum() == counts[kept].sum() == 2000
    assert ((counts[kept] - expected) ** 2 / expected).sum() < 72.1  # the 99.9th percentile at 39 degrees of freedom


def test_state_advances_and_remembers(sampler: Sampler) -> None:
    logits = np.random.default_rng(8).standard_normal(700).astype(np.float32)
    sampler.load(logits)
    history = list(range(100, 200))
    token = sampler.choose(GREEDY, history)
    before = np.frombuffer(initial_state(100, 7, history), np.uint32).copy()
    after = sampler.gpu.read(sampler.state, np.uint32)
    before[[STATE_POSITION, STATE_TOKEN, STATE_HISTORY + 100 % HISTORY_IDS]] = 100, token, token
    assert (after == before).all()
    sampler.gpu.run(*sampler.ops(sampler.readback, 1))
    before[[STATE_POSITION, STATE_HISTORY + 101 % HISTORY_IDS]] = 101, token
    assert (sampler.gpu.read(sampler.state, np.uint32) == before).all()
    slot = sampler.gpu.read(sampler.readback, np.uint32)
    assert slot[0] == token
    assert (slot[1:] == POISON_WORD).all()


def test_a_chosen_id_is_penalised_from_the_next_token_on(sampler: Sampler) -> None:
    logits = np.linspace(9, 5, 1100, dtype=np.float32)
    sampler.load(logits)
    assert sampler.draw(Sampling(temperature=0.0, repeat_penalty=4.0), [], 70)[:65] == [*range(64), 64]
    assert sampler.draw(Sampling(temperature=0.0, repeat_penalty=4.0), [], 66)[65] == 0  # forgotten again


def test_initial_state_places_the_last_64_ids() -> None:
    words = np.frombuffer(initial_state(70, 3, list(range(1000, 1070))), np.uint32)
    assert words.nbytes == STATE_BYTES
    assert all(words[STATE_HISTORY + place % 64] == 1000 + place for place in range(6, 70))
    words = np.frombuffer(initial_state(70, 3, [8, 9]), np.uint32)
    assert [words[STATE_HISTORY + place % 64] for place in (67, 68, 69, 70)] == [NO_ID, 8, 9, NO_ID]
    assert len(pack_step(Sampling(seed=2**64 - 1))) == STEP_BYTES


def test_descriptor_build_chooses_the_same() -> None:
    logits = np.random.default_rng(9).standard_normal(2500).astype(np.float32)
    with Gpu(binding="descriptors") as gpu:
        sampler = Sampler(gpu)
        sampler.load(logits)
        for sampling in (GREEDY, Sampling(seed=4)):
            assert sampler.choose(sampling, [1, 2]) == choose(logits, [1, 2], sampling, 2).token
