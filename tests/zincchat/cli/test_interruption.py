"""Ctrl-C that a module swallows while it loads still ends a command as Ctrl-C does."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import FakeEngine
from zincchat.app import ChatApp

Zincchat = Callable[..., Outcome]


def swallow(*arguments: object, **settings: object) -> None:
    """What numpy's extension modules do with a Ctrl-C that comes while they are loaded."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        raise ImportError('PyCapsule_Import could not import module "datetime"') from None


@pytest.mark.parametrize("arguments", [("run", "Hi"), ("bench",), ("trace", "out.json", "Hi")])
def test_an_import_that_ctrl_c_broke_is_an_interrupt(
    zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setattr(FakeEngine, "open", swallow)
    outcome = zincchat(*arguments)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "zincchat: interrupted\n")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_same_error_without_ctrl_c_is_told(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **settings: object) -> None:
        raise ImportError("no module")

    monkeypatch.setattr(FakeEngine, "open", fail)
    outcome = zincchat("run", "Hi")
    assert outcome.code == 1
    assert "no module" in outcome.err


def test_an_ignored_ctrl_c_stays_ignored(zincchat: Zincchat) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert zincchat("models", "path", "smollm2-135m").code == 0
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def test_the_chat_leaves_ctrl_c_to_asyncio(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = []
    monkeypatch.setattr("zincchat.cli.chat.has_terminal", lambda: True)
    monkeypatch.setattr(ChatApp, "run", lambda app: handlers.append(signal.getsignal(signal.SIGINT)))
    zincchat()
    assert handlers == [signal.default_int_handler]
