"""Engines that the validation layer watches."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, EngineError


def open_validated(path: Path, **options: Any) -> Engine:
    """The engine on the descriptor build with the validation layer; the test is skipped where there is no layer."""
    try:
        return Engine.open(path, binding="descriptors", validation=True, **options)
    except EngineError as error:
        if "validation layer" not in str(error) or os.environ.get("CI"):
            raise
        pytest.skip(f"{error}; 'make setup' brings it with the software driver")
