"""Tiny random models for the engine's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.tiny_model import write_tiny_llama


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer random llama with a tokenizer and a chat template."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    write_tiny_llama(path)
    return path
