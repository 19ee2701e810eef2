"""Bare ``zincchat``: what the chat is opened with."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import MODEL_SAMPLING, FakeEngine
from zincchat.options import ChatOptions

Zincchat = Callable[..., Outcome]


class RecordingApp:
    """Stands in for the app: keeps what it was made with and leaves at once."""

    opener: Callable[..., Any]
    options: ChatOptions
    return_code = 0

    def __init__(self, open_engine: Callable[..., Any], options: ChatOptions) -> None:
        RecordingApp.opener = staticmethod(open_engine)
        RecordingApp.options = options

    def run(self) -> None:
        """Nothing to show."""


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch, zincchat: Zincchat) -> None:
    """A terminal, and the recording app instead of the real one."""
    module = ModuleType("zincchat.app")
    module.ChatApp = RecordingApp  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "zincchat.app", module)
    monkeypatch.setattr("zincchat.cli.chat.has_terminal", lambda: True)


def test_the_app_loads_the_model_itself(zincchat: Zincchat, default_model: Path) -> None:
    outcome = zincchat("--mode", "rerecord", "--barriers", "every", "--context", "512", "--device", "1")
    assert outcome.code == 0
    assert FakeEngine.opened == []
    stages: list[str] = []
    engine = RecordingApp.opener(progress=lambda stage, done, total: stages.append(stage))
    assert FakeEngine.opened == [
        {"path": default_model, "mode": "rerecord", "barriers": "every", "context": 512, "device": 1, "fusion": True}
    ]
    assert stages == ["weights"]
    assert FakeEngine.last_takes == "messages"
    assert engine.sampling == MODEL_SAMPLING


def test_sampling_options_replace_the_models_own(zincchat: Zincchat) -> None:
    assert zincchat("--temperature", "0.5", "--system", "Be brief.", "--seed", "9").code == 0
    sampling = RecordingApp.opener(progress=None).sampling
    assert (sampling.temperature, sampling.top_p) == (0.5, MODEL_SAMPLING.top_p)
    assert RecordingApp.options.sampling is None
    assert (RecordingApp.options.system, RecordingApp.options.seed) == ("Be brief.", 9)


@pytest.mark.parametrize(("option", "thinking"), [(["--think"], True), (["--no-think"], False), ([], None)])
def test_thinking_is_the_apps_to_switch(zincchat: Zincchat, option: list[str], thinking: bool | None) -> None:
    assert zincchat(*option).code == 0
    assert RecordingApp.options.thinking is thinking


def test_without_a_seed_the_app_draws_one(zincchat: Zincchat, data_folder: Path) -> None:
    assert zincchat().code == 0
    assert RecordingApp.options.seed is None
    assert RecordingApp.options.history_path is not None
    assert RecordingApp.options.history_path.parent == data_folder


def test_the_exit_code_is_the_apps(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RecordingApp, "return_code", 1)
    assert zincchat().code == 1


def test_bad_options_end_before_the_screen_is_taken(zincchat: Zincchat, default_model: Path) -> None:
    assert zincchat("--temperature", "-1").code == 2
    default_model.unlink()
    outcome = zincchat()
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "zincchat models pull smollm2-135m" in outcome.err
