"""Fixtures shared by every test."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from engine import set_loader_environment
from zincchat import cached_driver
from zincchat.catalogue import CATALOGUE, DEFAULT_MODEL
from zincchat.launcher import driver_environment
from zincchat.paths import data_dir


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(specs: Iterable[Any]) -> None:
    """pytest-xdist's workers start as the launcher started this process, so that they run on the same driver."""
    driver = cached_driver.chosen()
    if driver is not None and driver.runs_here:
        for spec in specs:
            spec.python = shlex.join([*driver.prefix(), sys.executable])


def pytest_configure(config: pytest.Config) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it, and so its children
    if hasattr(config, "workerinput"):
        set_loader_environment(driver_environment())


# on a GPU each new shape would otherwise be measured for seconds, and divided by what other work on it allows
os.environ.setdefault("ZINCCHAT_TUNING", "off")


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
    """Gemma 3 270M (the base model) in Q4_K_M: 253 MB that nothing fetches, for its terms are not everybody's.

    $ZINCCHAT_TEST_GEMMA3, else in the folder of zincchat's models.
    """
    stated = os.environ.get("ZINCCHAT_TEST_GEMMA3")
    path = Path(stated) if stated else data_dir() / "models" / "gemma-3-270m-q4_k_m.gguf"
    if not path.is_file():
        pytest.skip(f"{path} is not there: fetch it, or set ZINCCHAT_TEST_GEMMA3")
    return path
