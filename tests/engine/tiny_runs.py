"""What tests of a tiny model's engine begin with."""

from __future__ import annotations

import numpy as np
import pytest

from engine import Engine, Sampling
from engine.program.attend_matrices import attend_matrices
from tests.engine.weight_data import fresh_random

GREEDY = Sampling(temperature=0.0)


def take_mode(engine: Engine, mode: str) -> None:
    if mode in engine.refused_modes:
        pytest.skip(engine.refused_modes[mode])
    engine.mode = mode


def attends_by_matrices(engine: Engine) -> bool:
    """Whether the device has cooperative matrices that fit the model's attention, for contexts that are long enough."""
    runtime, device = engine._runtime, engine._runtime._device
    sizes = device.matrix_sizes, device.subgroup_size, device.shared_bytes
    return attend_matrices(runtime._geometry, *sizes) is not None


def random_ids(count: int, vocab: int = 320, seed: int | None = None) -> list[int]:
    random = fresh_random() if seed is None else np.random.default_rng(seed)
    return random.integers(0, vocab, count).tolist()
