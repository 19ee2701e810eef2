"""Tiny random models for the engine's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import FUSION_PASSES, Engine
from engine.profile import remembered_tuning
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


@pytest.fixture(scope="module")
def one_layer_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A one-layer random llama: few matrices to divide."""
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "model.gguf", ffn=384, layers=1)


@pytest.fixture
def kept_tunings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where tunings are kept; GPUs are measured as they are outside of tests."""
    monkeypatch.delenv("ZINCCHAT_TUNING", raising=False)
    monkeypatch.setattr(remembered_tuning, "_file", lambda: tmp_path / "rows.json")
    return tmp_path / "rows.json"


@pytest.fixture
def random() -> np.random.Generator:
    return fresh_random()
