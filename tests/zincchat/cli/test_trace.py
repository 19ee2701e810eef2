"""``zincchat trace`` and ``run --export`` as their user sees them."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import TokenTiming
from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import REPLY, FakeEngine, FakeSession

Zincchat = Callable[..., Outcome]
TEXT = "".join(REPLY)


def test_the_reply_goes_to_stdout_and_the_timeline_to_the_file(zincchat: Zincchat, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    outcome = zincchat("trace", str(out), "Hi", "--mode", "rerecord")
    assert outcome.code == 0, outcome.err
    assert outcome.out == f"{TEXT}\n"
    assert outcome.err.count("\n") == 1
    assert FakeEngine.last.warm
    for part in (str(out), "4 tokens, 1 of them", "0.005 us", "ui.perfetto.dev"):
        assert part in outcome.err
    trace = json.loads(out.read_text(encoding="utf-8"))
    assert {
        event["args"]["text"]
        for event in trace["traceEvents"]
        if event.get("tid") == 2 and event["pid"] == 1 and (event["ph"] == "X")
    } == set(REPLY)
    data = trace["otherData"]
    assert (data["device"], data["driver"], data["model"]) == ("Fake llvmpipe", "fakepipe 1.0", "Fake-1M")
    assert data["deviation_ns"] == 5
    assert data["versions"]["vulkan_api"] == "1.4.354"
    assert data["command"] == f"zincchat trace {out} Hi --mode rerecord"


@pytest.mark.parametrize(("every", "stamped"), [("1", 4), ("2", 2), ("0", 0)])
def test_stamp_every(zincchat: Zincchat, tmp_path: Path, every: str, stamped: int) -> None:
    out = tmp_path / "out.json"
    assert zincchat("trace", str(out), "Hi", "--stamp-every", every).code == 0
    events = json.loads(out.read_text())["traceEvents"]
    assert len({e["args"]["token"] for e in events if e["ph"] == "X" and "op" in e["args"]}) == stamped
    assert FakeEngine.last.stamps_requested == (every != "0")


def test_options_are_those_of_run(zincchat: Zincchat, tmp_path: Path, default_model: Path) -> None:
    file = tmp_path / "chat.json"
    file.write_text('[{"role": "user", "content": "Hi"}]')
    outcome = zincchat(
        *("trace", str(tmp_path / "out.json"), "--messages", str(file), "--system", "Be brief.", "--mode", "rerecord"),
        *("--barriers", "every", "--no-fusion", "--context", "64", "--device", "1"),
        *("--max-tokens", "6", "--ignore-eos", "--seed", "9"),
    )
    assert outcome.code == 0, outcome.err
    assert outcome.out == TEXT + "".join(REPLY[:2]) + "\n"
    assert FakeEngine.opened == [
        {"path": default_model, "mode": "rerecord", "barriers": "every", "fusion": False, "context": 64, "device": 1}
    ]
    assert [turn["role"] for turn in FakeEngine.last.rendered[0]] == ["system", "user"]
    assert FakeEngine.last.sampled_with[0].seed == 9


BAD_PATHS = [
    (".", "folder"),
    ("missing/out", "No such file"),
    ("file/out", "Not a directory"),
    ("x" * 300, "too long"),
]


@pytest.mark.parametrize("command", ["trace", "run"])
@pytest.mark.parametrize(("bad", "reason"), BAD_PATHS)
def test_a_bad_path_is_one_line_before_a_model_is_loaded(
    zincchat: Zincchat, tmp_path: Path, command: str, bad: str, reason: str
) -> None:
    (tmp_path / "file").touch()
    if command == "run":
        (tmp_path / ".jsonl").mkdir()
        bad = ".jsonl" if bad == "." else f"{bad}.jsonl"
    path = str(tmp_path / bad)
    outcome = zincchat("trace", path, "Hi") if command == "trace" else zincchat("run", "Hi", "--export", path)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert "cannot write" in outcome.err
    assert reason in outcome.err
    assert "unexpected" not in outcome.err
    assert FakeEngine.opened == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_one_line(zincchat: Zincchat) -> None:
    outcome = zincchat("trace", "/dev/full", "Hi")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, f"{TEXT}\n", 1)
    assert "cannot write /dev/full: No space left" in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["trace"],
        ["trace", "-", "Hi"],
        ["trace", "out.json"],
        ["trace", "out.json", "Hi", "--stamp-every", "-1"],
        ["run", "Hi", "--export", "tokens.txt"],
    ],
)
def test_a_wrong_command_line_writes_nothing(
    zincchat: Zincchat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = list(tmp_path.iterdir())
    outcome = zincchat(*arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert FakeEngine.opened == []
    assert list(tmp_path.iterdir()) == before


def test_a_failed_reply_leaves_the_old_file(
    zincchat: Zincchat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.json"
    out.write_text("old")
    outcome = zincchat("trace", str(out), "long " * 100, "--context", "32")
    assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert out.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_an_interrupted_reply_is_traced_as_far_as_it_got(
    zincchat: Zincchat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = FakeSession.generate

    def interrupted(self: FakeSession, *arguments: object, **settings: object) -> object:
        for index, token in enumerate(generate(self, *arguments, **settings)):
            if index == 2:
                os.kill(os.getpid(), 2)
            yield token

    monkeypatch.setattr(FakeSession, "generate", interrupted)
    out, export = tmp_path / "out.json", tmp_path / "out.jsonl"
    assert zincchat("trace", str(out), "Hi").code == 130
    events = json.loads(out.read_text())["traceEvents"]
    assert len([event for event in events if event["name"] == "submit" and event["ph"] == "X"]) == 3
    assert zincchat("run", "Hi", "--export", str(export)).code == 130
    assert len(export.read_text().splitlines()) == 3


def test_export_writes_a_record_a_token(zincchat: Zincchat, tmp_path: Path) -> None:
    lines, table = tmp_path / "tokens.jsonl", tmp_path / "tokens.csv"
    assert zincchat("run", "Hi", "--export", str(lines)).out == f"{TEXT}\n"
    outcome = zincchat("run", "Hi", "--export", str(table), "--json")
    records = [json.loads(line) for line in lines.read_text().splitlines()]
    assert records == outcome.json["tokens"]
    assert set(records[0]) == set(TokenTiming.__dataclass_fields__)
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["period_us"]) for row in rows] == [record["period_us"] for record in records]
