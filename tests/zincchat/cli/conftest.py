"""The command line over a fake engine and an empty data folder that holds the default model's file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.zincchat.cli import fake_engine
from zincchat.catalogue import CATALOGUE, DEFAULT_MODEL
from zincchat.cli import main


@dataclass(frozen=True)
class Outcome:
    """How a command ended and what it wrote."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def run_in_process(capsys: pytest.CaptureFixture[str], *arguments: str) -> Outcome:
    """Run a command line and take what it wrote."""
    capsys.readouterr()
    code = main(arguments)
    captured = capsys.readouterr()
    return Outcome(code, captured.out, captured.err)


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data folder, and an empty cache of the hub's."""
    folder = tmp_path / "data"
    monkeypatch.setenv("ZINCCHAT_DATA", str(folder))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return folder


@pytest.fixture
def default_model(data_folder: Path) -> Path:
    """A file of the default model's size where the catalogue expects it (sparse: nothing reads it)."""
    model = CATALOGUE[DEFAULT_MODEL]
    model.path.parent.mkdir(parents=True)
    with model.path.open("wb") as file:
        file.truncate(model.file_bytes)
    return model.path


@pytest.fixture
def zincchat(
    default_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """Run a command line in this process against the fake engine."""
    fake_engine.install(monkeypatch)

    return lambda *arguments: run_in_process(capsys, *arguments)
