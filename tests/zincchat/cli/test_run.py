"""``zincchat run`` as its user sees it."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import TokenTiming
from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import MODEL_SAMPLING, REPLY, FakeEngine, FakeSession

Zincchat = Callable[..., Outcome]
TEXT = "".join(REPLY)


def test_the_reply_goes_to_stdout_and_one_line_of_figures_to_stderr(zincchat: Zincchat) -> None:
    outcome = zincchat("run", "Hi")
    assert outcome.code == 0
    assert outcome.out == f"{TEXT}\n"
    assert outcome.err.count("\n") == 1
    # Four tokens, three of them decoded at 10 ms each; the fake prefill runs at 40 tok/s.
    for part in ("4 tokens at 100 tok/s", "prefill 2 at 40.0 tok/s", "reuse", "barriers needed", "software"):
        assert part in outcome.err


def test_text_is_shown_as_it_comes(
    zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []
    generate = FakeSession.generate

    def spying(self: FakeSession, *arguments: object, **settings: object) -> object:
        for token in generate(self, *arguments, **settings):
            seen.append(capsys.readouterr().out)
            yield token

    monkeypatch.setattr(FakeSession, "generate", spying)
    assert zincchat("run", "Hi").code == 0
    assert seen == ["", *REPLY[:-1]]


def test_messages_are_the_system_prompt_then_the_file_then_the_prompt(zincchat: Zincchat, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    turns = [{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "Hallo"}]
    file.write_text(json.dumps(turns, ensure_ascii=False), encoding="utf-8")
    assert zincchat("run", "more", "--messages", str(file), "--system", "Be brief.").code == 0
    assert FakeEngine.last.rendered == [
        [{"role": "system", "content": "Be brief."}, *turns, {"role": "user", "content": "more"}]
    ]


def test_messages_alone_are_enough(zincchat: Zincchat, tmp_path: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text('[{"role": "user", "content": "Hi"}]')
    assert zincchat("run", "--messages", str(file)).code == 0
    assert FakeEngine.last.rendered == [[{"role": "user", "content": "Hi"}]]


def test_raw_skips_the_template(zincchat: Zincchat) -> None:
    assert zincchat("run", "--raw", "Once").code == 0
    assert FakeEngine.last.rendered == []
    assert FakeEngine.last.prompts == [FakeEngine.last.encode("Once")]


def test_a_dash_reads_the_prompt_from_stdin(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe\n"))
    assert zincchat("run", "-").code == 0
    assert FakeEngine.last.rendered == [[{"role": "user", "content": "from a pipe\n"}]]


def test_engine_options_reach_the_engine(zincchat: Zincchat, default_model: Path) -> None:
    outcome = zincchat(
        *("run", "Hi", "--mode", "rerecord", "--barriers", "every", "--no-fusion", "--context", "64", "--device", "1")
    )
    assert outcome.code == 0
    assert FakeEngine.opened == [
        {"path": default_model, "mode": "rerecord", "barriers": "every", "fusion": False, "context": 64, "device": 1}
    ]
    assert FakeEngine.last.closed


@pytest.mark.parametrize(
    ("command", "takes"),
    [
        (["run", "Hi"], "messages"),
        (["run", "--raw", "Hi"], "text"),
        (["trace", "out.json", "Hi"], "messages"),
        (["trace", "out.json", "--raw", "Hi"], "text"),
        (["bench", "--modes", "reuse"], "ids"),
    ],
)
def test_the_engine_is_told_what_prompts_are_made_of(
    zincchat: Zincchat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str], takes: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert zincchat(*command).code == 0
    assert FakeEngine.last_takes == takes


@pytest.mark.parametrize("command", [["run", "Hi"], ["bench", "--modes", "reuse"], ["trace", "out.json", "Hi"]])
def test_a_hugging_face_folder_is_quantised_as_said(
    zincchat: Zincchat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    assert zincchat(*command, "--model", str(tmp_path), "--quantize", "q4_0-all").code == 0
    assert FakeEngine.opened[0]["path"] == tmp_path
    assert FakeEngine.opened[0]["quantize"] == "q4_0-all"


def test_unset_sampling_options_are_the_models_own(zincchat: Zincchat) -> None:
    assert zincchat("run", "Hi").code == 0
    assert FakeEngine.last.sampled_with == [MODEL_SAMPLING]


def test_set_sampling_options_replace_the_models_own(zincchat: Zincchat) -> None:
    outcome = zincchat(
        *("run", "Hi", "--temperature", "0", "--top-k", "5", "--min-p", "0.1"),
        *("--repeat-penalty", "1.1", "--seed", str(2**64 - 1)),
    )
    assert outcome.code == 0
    (sampling,) = FakeEngine.last.sampled_with
    assert (sampling.temperature, sampling.top_k, sampling.min_p) == (0.0, 5, 0.1)
    assert (sampling.repeat_penalty, sampling.seed) == (1.1, 2**64 - 1)
    assert sampling.top_p == MODEL_SAMPLING.top_p


def test_max_tokens_and_ignore_eos(zincchat: Zincchat) -> None:
    outcome = zincchat("run", "Hi", "--max-tokens", "6", "--ignore-eos")
    assert outcome.out == TEXT + "".join(REPLY[:2]) + "\n"
    assert "--max-tokens" in outcome.err


def test_a_full_context_is_named(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        FakeSession, "finish_reason", property(lambda self: "context", lambda self, value: None), raising=False
    )
    outcome = zincchat("run", "Hi")
    assert outcome.code == 0
    assert "the context of 2048 tokens is full" in outcome.err


def test_json_has_the_documented_names(zincchat: Zincchat) -> None:
    outcome = zincchat("run", "Hi", "--json", "--seed", "7", "--mode", "rerecord")
    assert outcome.code == 0
    assert outcome.err == ""
    report = outcome.json
    assert report["device"] == "Fake llvmpipe"
    assert report["driver"] == "fakepipe 1.0"
    assert report["software_device"] is True
    assert report["model"] == "Fake-1M"
    assert report["versions"]["vulkan_api"] == "1.4.354"
    assert report["command"] == "zincchat run Hi --json --seed 7 --mode rerecord"
    assert set(dataclasses.asdict(MODEL_SAMPLING)) < set(report["settings"])
    assert report["settings"]["seed"] == 7
    assert report["settings"]["mode"] == "rerecord"
    assert report["prompt_ids"] == FakeEngine.last.prompts[0]
    assert report["ids"] == [0, 1, 2, 3]
    assert report["text"] == TEXT
    assert report["finish_reason"] == "stop"
    assert report["prefill"] == {"tokens": 2, "kept": 0, "seconds": 0.05, "tok_s": 40.0}
    assert report["ttft_us"] > 0
    assert report["decode_tok_s"] == pytest.approx(100)
    assert [set(token) for token in report["tokens"]] == [set(TokenTiming.__dataclass_fields__)] * 4
    assert [token["index"] for token in report["tokens"]] == [0, 1, 2, 3]
    assert {token["rerecorded"] for token in report["tokens"]} == {True}


def test_options_may_stand_before_the_command(zincchat: Zincchat) -> None:
    assert zincchat("--device", "gpu", "--mode", "rerecord", "run", "Hi").code == 0
    assert FakeEngine.opened[0]["device"] == "gpu"
    assert FakeEngine.opened[0]["mode"] == "rerecord"


def test_an_option_after_the_command_wins(zincchat: Zincchat) -> None:
    assert zincchat("--mode", "rerecord", "run", "Hi", "--mode", "reuse").code == 0
    assert FakeEngine.opened[0]["mode"] == "reuse"


def test_a_terminal_is_spared_control_characters(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.zincchat.cli.fake_engine.REPLY", ("a\x1b[2J", "\tb\n"))
    assert zincchat("run", "Hi").out == "a\x1b[2J\tb\n"
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert zincchat("run", "Hi").out == "a[2J\tb\n"
