"""Fixtures shared by every test."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

SMOLLM2_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The real model (98 MB, not in the repository): $ZINCCHAT_TEST_MODEL, else where ``make test`` fetches it."""
    stated = os.environ.get("ZINCCHAT_TEST_MODEL")
    path = Path(stated) if stated else platformdirs.user_data_path("zincchat") / "models" / SMOLLM2_FILE
    if not path.is_file():
        pytest.skip(f"{path} is not there: `make test` fetches it, or set ZINCCHAT_TEST_MODEL")
    return path
