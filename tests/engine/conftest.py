"""Tiny random models for the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import FUSION_PASSES, Engine
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.weight_data import fresh_random


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random llama with a tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_llama(path)
    return path


@pytest.fixture(scope="module", params=[None, False], ids=["", "gpu-kernels"])
def engine(tiny_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """The tiny model with this device's own kernels, then with those for GPUs, which a software device runs too."""
    with Engine.open(tiny_path, fusion=FUSION_PASSES, row_kernels=request.param) as opened:
        yield opened


@pytest.fixture
def random() -> np.random.Generator:
    return fresh_random()
