"""What tests of a tiny model's engine begin with."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Engine, Sampling

GREEDY = Sampling(temperature=0.0)


def take_mode(engine: Engine, mode: str) -> None:
    if mode in engine.refused_modes:
        pytest.skip(engine.refused_modes[mode])
    engine.mode = mode


def random_ids(count: int, vocab: int = 320, seed: int | None = None) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocab, count).tolist()
