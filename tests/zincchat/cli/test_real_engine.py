"""The command line over the real engine: a random model for its paths, the default model for its ids."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import BARRIERS, MODES
from tests.engine.tiny_model import write_tiny_llama
from tests.zincchat.cli.conftest import Outcome, run_in_process
from zincchat.bench.measure import STAMP_EVERY

REFERENCE = Path(__file__).parents[2] / "data" / "ref_smollm2.json"
CHATS = json.loads(REFERENCE.read_text(encoding="utf-8"))["prompts"]

Zincchat = Callable[..., Outcome]


@pytest.fixture
def real(data_folder: Path, capsys: pytest.CaptureFixture[str]) -> Zincchat:
    """Run a command line in this process."""
    return lambda *arguments: run_in_process(capsys, *arguments)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("models") / "tiny.gguf")


@pytest.mark.parametrize(("chat", "mode"), [(0, "reuse"), (1, "rerecord"), (2, "reuse")])
def test_the_reference_chats_give_the_reference_ids(
    real: Zincchat, smollm2_path: Path, tmp_path: Path, chat: int, mode: str
) -> None:
    expected = CHATS[chat]
    file = tmp_path / "chat.json"
    file.write_text(json.dumps(expected["messages"]), encoding="utf-8")
    outcome = real(
        *("run", "--messages", str(file), "--model", str(smollm2_path), "--mode", mode),
        *("--temperature", "0", "--max-tokens", "40", "--ignore-eos", "--json"),
    )
    assert outcome.code == 0, outcome.err
    report = outcome.json
    assert report["prompt_ids"] == expected["ids"]
    assert report["ids"] == expected["greedy40_ids"]
    assert report["finish_reason"] == "length"
    assert {token["mode"] for token in report["tokens"]} == {mode}


def test_a_raw_prompt_and_a_chat(real: Zincchat, tiny: Path) -> None:
    seeded = ("--model", str(tiny), "--seed", "5", "--max-tokens", "12", "--ignore-eos")
    text = real("run", "--raw", "the cat", *seeded)
    assert text.code == 0, text.err
    again = real("run", "--raw", "the cat", *seeded, "--mode", "rerecord", "--barriers", "every", "--json").json
    assert text.out.rstrip("\n") == again["text"].rstrip("\n")
    assert len(again["ids"]) == len(again["tokens"]) == 12
    assert len(real("run", "the cat", *seeded, "--json").json["prompt_ids"]) > len(again["prompt_ids"])


def test_bench_measures_every_mode(real: Zincchat, tiny: Path) -> None:
    outcome = real(
        *("bench", "--model", str(tiny), "--prefill", "40", "--tokens", "24", "--repeat", "2", "--json"),
        *("--barriers", ",".join(BARRIERS), "--fusion", "off"),
    )
    assert outcome.code == 0, outcome.err
    report = outcome.json
    runs = {(run["mode"], run["barriers"]): run for run in report["runs"]}
    assert "without mode persistent: its workgroups" in outcome.err  # no mode for a software device
    offered = [mode for mode in MODES if mode != "persistent"]
    assert set(runs) == {(mode, barriers) for mode in offered for barriers in BARRIERS}
    for run in runs.values():
        assert run["decode_tok_s"]["p5"] > 0
        assert run["prefill_tok_s"]["p5"] > 0
        assert run["ratio_to_first"]["low"] <= run["ratio_to_first"]["median"] <= run["ratio_to_first"]["high"]
        assert run["gpu_total_us"] > 0
        assert run["wait_wall_us"] > 0
        assert run["stamped_tokens"] == 2 * 24 // STAMP_EVERY
        assert run["kernels_us"] is not None or run["bubbles_range_us"] is not None
        assert run["fusion_setting"] == "off"
    for mode in ("rerecord", "overlap"):
        run = runs[mode, "needed"]
        assert run["recordings"] == 24
        assert run["record_us_per_dispatch"] > 0
        assert run["build_us_per_op"] > 0
    for mode in ("reuse", "pipelined"):
        run = runs[mode, "needed"]
        assert (run["recordings"], run["build_us"], run["record_us"]) == (0, 0, 0)  # recorded in the warm-up
    assert runs["reuse", "every"]["barrier_count"] > runs["reuse", "needed"]["barrier_count"]
    assert runs["reuse", "flags"]["barrier_count"] == runs["reuse", "needed"]["barrier_count"]
    assert report["device_bytes"] > 0


def test_fusion_by_name_changes_the_program(real: Zincchat, tiny: Path) -> None:
    outcome = real(
        *("bench", "--model", str(tiny), "--prefill", "8", "--tokens", "8", "--repeat", "1", "--json"),
        *("--modes", "reuse", "--fusion", "off,residual,residual+rope_store,on"),
    )
    assert outcome.code == 0, outcome.err
    runs = outcome.json["runs"]
    dispatches = [run["dispatches"] for run in runs]
    assert dispatches == sorted(set(dispatches), reverse=True)
    assert [run["passes"] for run in runs[:2]] == [[], ["residual"]]


def test_without_a_tokenizer_bench_works_and_run_says_why_not(real: Zincchat, tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "mute.gguf", tokenizer=False)
    bench = real("bench", "--model", str(path), "--prefill", "8", "--tokens", "4", "--repeat", "1")
    assert bench.code == 0, bench.err
    run = real("run", "Hi", "--model", str(path))
    assert (run.code, run.out, run.err.count("\n")) == (1, "", 1)
    assert "mute.gguf" in run.err


def test_a_prompt_longer_than_the_context(real: Zincchat, tiny: Path) -> None:
    outcome = real("run", "the cat " * 50, "--model", str(tiny), "--context", "32")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert "32" in outcome.err


@pytest.mark.parametrize("damage", ["empty", "foreign", "truncated", "header only"])
def test_a_damaged_model_file_is_one_line(real: Zincchat, tiny: Path, tmp_path: Path, damage: str) -> None:
    whole = tiny.read_bytes()
    content = {"empty": b"", "foreign": b"hello" * 100, "truncated": whole[:-100], "header only": whole[:20]}[damage]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    for arguments in (["run", "Hi"], ["bench"]):
        outcome = real(*arguments, "--model", str(path))
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
        assert "bad.gguf" in outcome.err
        assert "unexpected" not in outcome.err


def test_an_unknown_device_lists_those_there_are(real: Zincchat, tiny: Path) -> None:
    outcome = real("run", "Hi", "--model", str(tiny), "--device", "voodoo")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    first = real("devices", "--json").json[0]
    assert first["name"] in outcome.err


@pytest.mark.parametrize("mode", ["rerecord", "pipelined"])
def test_a_trace_has_the_reply_and_its_kernels(real: Zincchat, tiny: Path, tmp_path: Path, mode: str) -> None:
    out = tmp_path / "out.json"
    settings = ("--model", str(tiny), "--mode", mode, "--max-tokens", "10", "--ignore-eos", "--temperature", "0")
    outcome = real("trace", str(out), "the cat", *settings)
    assert (outcome.code, outcome.err.count("\n")) == (0, 1), outcome.err
    trace = json.loads(out.read_text(encoding="utf-8"))
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert trace["otherData"]["text"].rstrip("\n") == outcome.out.rstrip("\n")
    assert {event["args"]["mode"] for event in slices if "mode" in event["args"]} == {mode}
    assert any(event["args"].get("piece") == "head" for event in slices) == (" 0 of them" not in outcome.err)


def test_a_context_that_does_not_fit_is_one_line_with_one_that_does(real: Zincchat, tmp_path: Path) -> None:
    path = write_tiny_llama(tmp_path / "wide.gguf", layers=16, hidden=1024, heads=4, kv_heads=4, ffn=32, context=2**24)
    outcome = real("run", "--raw", "the cat", "--model", str(path), "--context", str(2**24))
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert re.search(r"take --context \d+ or less", outcome.err)
