"""What tests of a tiny model's engine begin with."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Engine, Sampling
from tests.engine.weight_data import fresh_random

GREEDY = Sampling(temperature=0.0)


def take_mode(engine: Engine, mode: str) -> None:
    if mode in engine.refused_modes:
        pytest.skip(engine.refused_modes[mode])
    engine.mode = mode


def random_ids(count: int, vocab: int = 320, seed: int | None = None) -> list[int]:
    random = fresh_random() if seed is None else np.random.default_rng(seed)
    return random.integers(0, vocab, count).tolist()
