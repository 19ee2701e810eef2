"""Bad input ends in one clear line and an exit code that is not 0."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import FakeEngine, FakeSession

Zincchat = Callable[..., Outcome]


def assert_one_line(outcome: Outcome, code: int, *parts: str) -> None:
    """It ended with ``code`` and one line that holds every one of ``parts``; nothing went to stdout."""
    assert outcome.code == code
    assert outcome.out == ""
    assert outcome.err.startswith("zincchat: ")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["run", "Hi", "--mode", "warp"], ["mode", "'warp'", "rerecord, overlap, reuse, pipelined"]),
        (["run", "Hi", "--barriers", "none"], ["'none'", "every, needed"]),
        (["run", "Hi", "--temperature", "-1"], ["temperature is -1.0", "between 0.0"]),
        (["run", "Hi", "--temperature", "nan"], ["temperature is nan"]),
        (["run", "Hi", "--temperature", "hot"], ["--temperature", "'hot'"]),
        (["run", "Hi", "--top-p", "1.5"], ["top_p is 1.5"]),
        (["run", "Hi", "--min-p", "2"], ["min_p is 2.0"]),
        (["run", "Hi", "--top-k", "-1"], ["top_k is -1"]),
        (["run", "Hi", "--repeat-penalty", "0"], ["repeat_penalty is 0.0"]),
        (["run", "Hi", "--seed", "-1"], ["seed is -1"]),
        (["run", "Hi", "--max-tokens", "0"], ["--max-tokens"]),
        (["run", "Hi", "--context", "0"], ["--context"]),
        (["run", "Hi", "--fusion", "off"], ["(off); it is --fusion or --no-fusion, without a value"]),
        (["--fusion", "off"], ["'off'", "it is --fusion or --no-fusion, without a value"]),
        (["run", "Hi", "--speed"], ["--speed"]),
        (["chat"], ["No such command 'chat'", "the chat is 'zincchat' alone"]),
        (["my.gguf"], ["No such command 'my.gguf'", "zincchat --model my.gguf"]),
        (["why", "is it so?"], ["No such command 'why'", "zincchat run 'why is it so?'"]),
        (["bnech"], ["Did you mean 'bench'?"]),
        (["run"], ["nothing to answer", "PROMPT"]),
        (["run", "--raw"], ["--raw needs a PROMPT"]),
        (["run", "--raw", "Hi", "--system", "x"], ["--raw"]),
        (["run", "--raw", ""], ["the prompt is empty"]),
        (["run", "Hi", "--model", "gpt-5"], ["unknown model 'gpt-5'", "smollm2-135m"]),
        (["run", "Hi", "--model", ""], ["unknown model ''", "smollm2-135m"]),
        (["bench", "--modes", "reuse,warp"], ["'warp'", "rerecord, overlap, reuse, pipelined"]),
        (["bench", "--modes", ""], ["mode ''"]),
        (["bench", "--repeat", "0"], ["--repeat"]),
        (["bench", "--fusion", "on,sideways"], ["unknown fusion 'sideways'", "on, off, qkv"]),
        (["bench", "--fusion", "qkv+off"], ["unknown fusion 'off'"]),
        (["bench", "--fusion", "on", "--no-fusion"], ["--no-fusion and --fusion"]),
        (["bench", "--json", "--markdown"], ["--json and --markdown"]),
        (["bench", "--context", "100"], ["--context 100 is too small", "512"]),
        (["run", "caf\udce9"], ["PROMPT", "not valid UTF-8"]),
        (["run", "--raw", "caf\udce9"], ["PROMPT", "not valid UTF-8"]),
        (["run", "Hi", "--system", "caf\udce9"], ["--system", "not valid UTF-8"]),
        (["models", "path", "gpt-5"], ["unknown model 'gpt-5'", "smollm2-135m"]),
        (["models", "pull", "gpt-5"], ["unknown model 'gpt-5'"]),
        (["dance"], ["'dance'"]),
        (["--temperature", "0", "bench"], ["--temperature means nothing to 'bench'"]),
        (["--mode", "warp"], ["'warp'"]),
        (["run", "Hi", "--quantize", "q3_k"], ["unknown quantisation 'q3_k'", "q8_0", "q4_0-all"]),
    ],
)
def test_a_wrong_command_line(zincchat: Zincchat, arguments: list[str], parts: list[str]) -> None:
    assert_one_line(zincchat(*arguments), 2, *parts, "--help")
    assert FakeEngine.opened == [] or arguments[:2] == ["run", "--raw"]  # no model is loaded for it


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"{oops", ["not JSON", "line 1, column 2"]),
        (b"\xff\xfe\x00", ["not UTF-8"]),
        (b"[" * 100_000, ["chat.json"]),
        (b"{}", ["JSON list"]),
        (b"[]", ["at least one message"]),
        (b'["hello"]', ["message 1", "object"]),
        (
            b'[{"role": "user", "content": "a"}, {"role": "robot", "content": "b"}]',
            ["message 2", "'robot'", "assistant"],
        ),
        (b'[{"role": ["user"], "content": "a"}]', ["message 1", "role"]),
        (b'[{"role": "user"}]', ["message 1", "content"]),
        (b'[{"role": "user", "content": "\\ud800"}]', ["message 1", "not valid UTF-8"]),
        (b'[{"role": "user", "content": 5}]', ["message 1", "content"]),
        (b'[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]', ["nothing to answer"]),
    ],
)
def test_a_bad_messages_file(zincchat: Zincchat, tmp_path: Path, content: bytes, parts: list[str]) -> None:
    file = tmp_path / "chat.json"
    file.write_bytes(content)
    assert_one_line(zincchat("run", "--messages", str(file)), 2, *parts)
    assert FakeEngine.opened == []


def test_a_missing_messages_file(zincchat: Zincchat, tmp_path: Path) -> None:
    assert_one_line(zincchat("run", "--messages", str(tmp_path / "none.json")), 2, "none.json", "No such file")


def rates_of(rate: str) -> bytes:
    run = '{"mode": "reuse", "barriers": "needed", "decode_tok_s": {"median": %s}, "prefill_tok_s": {"median": 1}}'
    return ('{"runs": [' + run % rate + "]}").encode()


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"\xff\xfe", "not JSON"),
        (b"{oops", "not JSON"),
        (b"[]", "not a bench's JSON"),
        (b'{"runs": []}', "not a bench's JSON"),
        (b'{"runs": [{"mode": "reuse", "barriers": "needed", "decode_tok_s": 5}]}', "not a bench's JSON"),
        (
            b'{"runs": [{"mode": "a", "barriers": "", "decode_tok_s": {"median": 0}, "prefill_tok_s": {"median": 1}}]}',
            "not a bench's JSON",
        ),
        *((rates_of(rate), "not a bench's JSON") for rate in ("Infinity", "1" + 400 * "0", "1e-320", "NaN", "true")),
    ],
)
def test_a_bad_earlier_bench(zincchat: Zincchat, tmp_path: Path, content: bytes, part: str) -> None:
    file = tmp_path / "before.json"
    file.write_bytes(content)
    assert_one_line(zincchat("bench", "--against", str(file)), 1, "before.json", part, "bench --json")
    assert FakeEngine.opened == []


def test_a_missing_earlier_bench(zincchat: Zincchat, tmp_path: Path) -> None:
    assert_one_line(zincchat("bench", "--against", str(tmp_path / "none.json")), 1, "none.json", "No such file")


def test_two_system_prompts(zincchat: Zincchat, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text('[{"role": "system", "content": "a"}, {"role": "user", "content": "b"}]')
    assert_one_line(zincchat("run", "--messages", str(file), "--system", "c"), 2, "system message")


def test_a_missing_model_file(zincchat: Zincchat, tmp_path: Path) -> None:
    assert_one_line(zincchat("run", "Hi", "--model", str(tmp_path / "none.gguf")), 1, "none.gguf", "does not exist")


def test_a_catalogue_model_that_is_not_on_disk(zincchat: Zincchat, default_model: Path) -> None:
    default_model.unlink()
    for arguments in (["run", "Hi"], ["bench"], ["models", "path", "smollm2-135m"]):
        assert_one_line(zincchat(*arguments), 1, "zincchat models pull smollm2-135m")


def test_a_plain_folder_is_no_model(zincchat: Zincchat, data_folder: Path) -> None:
    outcome = zincchat("run", "Hi", "--model", str(data_folder))
    assert_one_line(outcome, 1, "is a folder without a config.json", "Hugging Face model's folder")


def test_an_unknown_device(zincchat: Zincchat) -> None:
    assert_one_line(zincchat("run", "Hi", "--device", "voodoo"), 1, "'voodoo'", "Fake GPU")


def test_a_prompt_longer_than_the_context(zincchat: Zincchat) -> None:
    assert_one_line(zincchat("run", "x" * 20, "--context", "16"), 1, "20 tokens", "16")
    assert FakeEngine.last.closed


def test_debug_shows_the_cause_and_only_debug_does(zincchat: Zincchat) -> None:
    plain = zincchat("run", "x" * 20, "--context", "16")
    for arguments in (["run", "--debug"], ["--debug", "run"]):
        outcome = zincchat(*arguments, "x" * 20, "--context", "16")
        assert outcome.code == 1
        assert "Traceback" in outcome.err
        assert outcome.err.endswith(plain.err)


def test_an_unexpected_error_is_one_line_too(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: FakeSession, *arguments: object, **settings: object) -> None:
        raise ZeroDivisionError("nobody\nexpected this")

    monkeypatch.setattr(FakeSession, "prefill", fail)
    assert_one_line(zincchat("run", "Hi"), 1, "ZeroDivisionError", "nobody expected this", "--debug")


def test_an_error_gives_the_terminal_nothing_to_obey(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor's name, say."""

    def fail(*_args: object, **_kwargs: object) -> None:
        raise ValueError("tensor \x1b]0;x\x07\udce9 \u00e9\U0001f469\u200d\U0001f52c\nis none")

    monkeypatch.setattr(FakeEngine, "open", fail)
    outcome = zincchat("run", "Hi")
    assert_one_line(outcome, 1, "tensor \ufffd]0;x\ufffd\ufffd \u00e9\U0001f469\u200d\U0001f52c is none")


def test_the_chat_needs_a_terminal(zincchat: Zincchat) -> None:
    assert_one_line(zincchat(), 1, "needs a terminal", "zincchat run")
