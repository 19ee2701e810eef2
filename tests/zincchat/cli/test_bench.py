"""``zincchat bench``: what it measures, in which order, and the names it reports."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import FakeEngine

Zincchat = Callable[..., Outcome]

SHORT = ("bench", "--prefill", "8", "--tokens", "16", "--repeat", "2")


def test_json_has_the_documented_names(zincchat: Zincchat) -> None:
    outcome = zincchat(*SHORT, "--json")
    assert outcome.code == 0
    report = outcome.json
    assert {"device", "driver", "model", "versions", "command", "probe_gb_s", "runs"} <= set(report)
    assert report["probe_gb_s"] is None
    assert report["device_bytes"] == 150_000_000
    assert report["host_rss_bytes"] > 1_000_000
    assert [run["mode"] for run in report["runs"]] == ["rerecord", "reuse"]
    rerecord, reuse = report["runs"]
    assert set(rerecord["decode_tok_s"]) == set(rerecord["prefill_tok_s"]) == {"median", "p5", "p95"}
    assert rerecord["decode_tok_s"]["p5"] <= rerecord["decode_tok_s"]["median"] <= rerecord["decode_tok_s"]["p95"]
    assert rerecord["prefill_tok_s"]["median"] == pytest.approx(40)
    assert (rerecord["fusion"], rerecord["barriers"]) == (True, "needed")
    assert (rerecord["dispatches"], rerecord["barrier_count"]) == (10, 8)
    for step in ("build", "record", "patch", "submit", "wait", "readback"):
        assert isinstance(rerecord[f"{step}_us"], float)
        assert isinstance(rerecord[f"{step}_wall_us"], float)
    assert (rerecord["record_us"], rerecord["record_us_per_dispatch"]) == (20.0, 2.0)
    assert (rerecord["build_us"], rerecord["build_us_per_op"]) == (30.0, 3.0)
    assert (reuse["record_us"], reuse["record_us_per_dispatch"], reuse["build_us_per_op"]) == (0.0, None, None)
    assert reuse["patch_submit_us"] == 5.0
    assert reuse["exposed_cpu_us"] == 50.0
    assert reuse["floor_fraction"] is None
    # Sixteen decoded tokens and the first, each recorded anew; none where the recording is reused.
    assert (rerecord["recordings"], reuse["recordings"]) == (17, 0)


def test_gpu_totals_are_of_clean_tokens_and_kernels_of_stamped_ones(zincchat: Zincchat) -> None:
    run = zincchat(*SHORT, "--json").json["runs"][0]
    assert (run["gpu_total_us"], run["gpu_idle_before_us"]) == (8_800.0, 100.0)
    assert (run["kernels_us"], run["bubbles_us"]) == (7_000.0, 500.0)
    assert run["pieces_us"] == {"weights": 5_000.0, "kv": 500.0, "small": 1_000.0, "head": 500.0}
    assert run["stamped_tokens"] > 0
    assert run["stamp_cost_fraction"] == pytest.approx(0.25)


def test_stamps_are_off_while_throughput_is_measured_and_as_before_at_the_end(zincchat: Zincchat) -> None:
    assert zincchat(*SHORT).code == 0
    intervals = [stamp_every for _mode, _barriers, stamp_every in FakeEngine.last.log]
    stamped_pass = 2 * 17
    assert set(intervals[:-stamped_pass]) == {0}
    assert 0 not in intervals[-stamped_pass:]
    assert FakeEngine.last.stamp_every == 16


def test_repeats_are_interleaved_and_reversed_every_second_time(zincchat: Zincchat) -> None:
    assert zincchat(*SHORT, "--barriers", "every,needed").code == 0
    order: list[tuple[str, str]] = []
    for mode, barriers, _stamp_every in FakeEngine.last.log:
        if not order or order[-1] != (mode, barriers):
            order.append((mode, barriers))
    forward = [("rerecord", "every"), ("rerecord", "needed"), ("reuse", "every"), ("reuse", "needed")]
    # Warm-up, repeat 1, repeat 2 reversed (starting with the setting that repeat 1 ended with), stamped pass.
    assert order == [*forward, *forward, *forward[-2::-1], *forward[1:]]


def test_prefill_and_decode_each_start_from_an_empty_context(zincchat: Zincchat) -> None:
    assert zincchat(*SHORT, "--modes", "reuse").code == 0
    prompts = FakeEngine.last.prompts
    assert [len(prompt) for prompt in prompts] == [8, 1] * 3 + [1]
    assert all(0 <= id_ < FakeEngine.last.model.vocab_size for prompt in prompts for id_ in prompt)
    assert len({tuple(prompt) for prompt in prompts}) == 2  # the same work each time
    assert {sampling.temperature for sampling in FakeEngine.last.sampled_with} == {0.0}


def test_the_first_token_is_no_decode_step(zincchat: Zincchat) -> None:
    report = zincchat(*SHORT, "--modes", "reuse", "--repeat", "1", "--json").json
    tokens = [mode for mode, _barriers, stamp_every in FakeEngine.last.log if stamp_every == 0]
    assert len(tokens) == (8 + 1) + (16 + 1)  # the warm-up is shorter
    run = report["runs"][0]
    assert run["decode_tok_s"]["p5"] == run["decode_tok_s"]["median"] == run["decode_tok_s"]["p95"]


def test_the_floor_needs_a_measured_bandwidth(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "probe_gb_s", 9.7, raising=False)
    report = zincchat(*SHORT, "--json").json
    assert report["probe_gb_s"] == 9.7
    # 9.7 GB/s over 97 MB of weights are 100 tokens a second.
    run = report["runs"][0]
    assert run["floor_fraction"] == pytest.approx(run["decode_tok_s"]["median"] / 100)


def test_the_context_grows_with_the_work(zincchat: Zincchat) -> None:
    assert zincchat("bench", "--prefill", "3000", "--tokens", "1", "--repeat", "1").code == 0
    assert FakeEngine.opened[0]["context"] == 3000
    assert zincchat(*SHORT).code == 0
    assert FakeEngine.opened[1]["context"] is None


def test_a_model_that_holds_too_little_says_so(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.zincchat.cli.fake_engine.TRAINED_CONTEXT", 256)
    outcome = zincchat("bench")
    assert (outcome.code, outcome.out) == (1, "")
    assert "Fake-1M holds 256 tokens; this bench needs 512" in outcome.err


def test_the_table_names_device_modes_and_units(zincchat: Zincchat) -> None:
    outcome = zincchat(*SHORT, "--no-fusion")
    assert outcome.code == 0
    assert "Fake-1M Q4_1 on Fake llvmpipe (software" in outcome.out
    assert "not fused" in outcome.out
    rows = {line.split()[0]: line.split() for line in outcome.out.splitlines() if line}
    assert rows["rerecord"][1] == "needed"
    # build, record, submit with patch, GPU, idle, kernels, bubbles in milliseconds
    assert rows["rerecord"][-7:] == ["0.030", "0.020", "0.005", "8.800", "0.100", "7.000", "0.500"]
    assert rows["reuse"][-7:] == ["0.000", "0.000", "0.005", "8.800", "0.100", "7.000", "0.500"]
