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
