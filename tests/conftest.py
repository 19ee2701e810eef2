"""Fixtures shared by every test."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from zincchat.catalogue import CATALOGUE, DEFAULT_MODEL


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real model (98 MB, not in the repository): $ZINCCHAT_TEST_MODEL, else where ``make test`` fetches it."""
    stated = os.environ.get("ZINCCHAT_TEST_MODEL")
    path = Path(stated) if stated else CATALOGUE[DEFAULT_MODEL].path
    if not path.is_file():
        pytest.skip(f"{path} is not there: `make test` fetches it, or set ZINCCHAT_TEST_MODEL")
    return path


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M in Q4_K_M (253 MB), which nothing fetches: its terms are not for everybody to accept."""
    stated = os.environ.get("ZINCCHAT_TEST_GEMMA3")
    if not stated or not Path(stated).is_file():
        pytest.skip("Gemma 3 is not there: set ZINCCHAT_TEST_GEMMA3 to gemma-3-270m-q4_k_m.gguf")
    return Path(stated)
