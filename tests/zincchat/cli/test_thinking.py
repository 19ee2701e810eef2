"""``zincchat run`` with a model that thinks: the answer is the result, the thoughts stand beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.engine.tiny_model import THINK_TAGS, THINKING, write_tiny_llama
from tests.zincchat.cli.conftest import Outcome, run_in_process
from tests.zincchat.cli.fake_engine import REPLY, FakeEngine

Zincchat = Callable[..., Outcome]
TEXT = "".join(REPLY)


@pytest.fixture
def thinks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.zincchat.cli.fake_engine.THOUGHTS", ("\n", "so ", "\x1bit ", "goes\n"))
    monkeypatch.setattr("tests.zincchat.cli.fake_engine.REPLY", ("\n\n", *REPLY))


@pytest.mark.usefixtures("thinks")
def test_a_pipe_gets_the_answer_alone(zincchat: Zincchat) -> None:
    outcome = zincchat("run", "Hi")
    assert outcome.out == f"{TEXT}\n"
    assert outcome.err.startswith("9 tokens (4 of them thoughts) at ") and outcome.err.count("\n") == 1


@pytest.mark.usefixtures("thinks")
def test_a_terminal_gets_the_thoughts_dimmed_beside_it(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    outcome = zincchat("run", "Hi")
    assert outcome.out == f"{TEXT}\n"
    dimmed = "\x1b[2mso \x1b[0m\x1b[2mit \x1b[0m\x1b[2mgoes\n\x1b[0m\n"
    assert dimmed in outcome.err
    assert zincchat("run", "Hi", "--json").err.count("\x1b[2m") == 0


@pytest.mark.usefixtures("thinks")
def test_thoughts_cut_off_end_their_line(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    outcome = zincchat("run", "Hi", "--max-tokens", "3")
    assert outcome.out == ""
    assert "\x1b[2mso \x1b[0m\x1b[2mit \x1b[0m\n3 tokens (3 of them thoughts) at" in outcome.err


@pytest.mark.usefixtures("thinks")
def test_json_has_the_thoughts_in_their_own_field(zincchat: Zincchat) -> None:
    report = zincchat("run", "Hi", "--json", "--no-think").json
    assert (report["text"], report["thoughts"]) == (TEXT, "so \x1bit goes")
    assert report["settings"]["thinking"] is False
    assert len(report["tokens"]) == len(report["ids"]) == 9


@pytest.mark.usefixtures("thinks")
def test_a_trace_keeps_them_apart(zincchat: Zincchat, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    outcome = zincchat("trace", str(path), "Hi", "--think")
    assert (outcome.code, outcome.out) == (0, f"{TEXT}\n")
    other = json.loads(path.read_text())["otherData"]
    assert (other["text"], other["thoughts"]) == (TEXT, "so \x1bit goes")
    assert FakeEngine.last.thinking == [True]


def test_json_of_a_reply_without_thoughts(zincchat: Zincchat) -> None:
    report = zincchat("run", "Hi", "--json").json
    assert (report["text"], report["thoughts"], report["settings"]["thinking"]) == (TEXT, None, None)


@pytest.mark.parametrize(("option", "thinking"), [("--think", True), ("--no-think", False), (None, None)])
@pytest.mark.parametrize("before", [True, False])
def test_the_switch_reaches_the_template(
    zincchat: Zincchat, option: str | None, thinking: bool | None, before: bool
) -> None:
    given = [option] if option else []
    assert zincchat(*(given if before else []), "run", "Hi", *([] if before else given)).code == 0
    assert FakeEngine.last.thinking == [thinking]


def test_raw_has_no_switch(zincchat: Zincchat) -> None:
    outcome = zincchat("run", "--raw", "Hi", "--no-think")
    assert outcome.code == 2
    assert "--think and --no-think are for the chat template, which --raw leaves out" in outcome.err


def test_messages_may_bring_thoughts(zincchat: Zincchat, tmp_path: Path) -> None:
    turns = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Ho", "reasoning_content": "hm"},
        {"role": "user", "content": "Bye"},
    ]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(turns))
    assert zincchat("run", "--messages", str(file)).code == 0
    assert FakeEngine.last.rendered == [turns]
    file.write_text(json.dumps([{"role": "user", "content": "Hi", "reasoning_content": 5}]))
    assert "message 1 has a 'reasoning_content' that is no text" in zincchat("run", "--messages", str(file)).err


@pytest.fixture(scope="module")
def thinker(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("models") / "thinker.gguf"
    return write_tiny_llama(path, layers=1, template=THINKING, added=THINK_TAGS)


@pytest.mark.usefixtures("data_folder")
def test_a_real_model_with_and_without(thinker: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def report(*switch: str) -> dict[str, str]:
        options = ("--model", str(thinker), "--max-tokens", "6", "--temperature", "0", "--json")
        return run_in_process(capsys, "run", "the cat", *options, *switch).json  # type: ignore[no-any-return]

    own, on, off = report(), report("--think"), report("--no-think")
    assert own["thoughts"] == on["thoughts"] and own["thoughts"] and not own["text"]
    assert off["text"] and off["thoughts"] is None


@pytest.mark.usefixtures("data_folder")
def test_a_model_without_a_switch_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tiny_llama(tmp_path / "plain.gguf", layers=1)
    outcome = run_in_process(capsys, "run", "the cat", "--model", str(path), "--no-think")
    assert outcome.code == 1
    assert outcome.err == (
        "zincchat: the model's chat template has no switch for thinking: leave --think and --no-think out\n"
    )
