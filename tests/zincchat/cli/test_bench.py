"""``zincchat bench``: what it measures, in which order, and the names it reports."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

import engine as engine_package
from engine import EngineError, Tuning
from engine.program.tuning import Division
from tests.zincchat.cli.conftest import Outcome
from tests.zincchat.cli.fake_engine import FakeEngine, FakeSession

Zincchat = Callable[..., Outcome]

SHORT = ("bench", "--prefill", "8", "--tokens", "16", "--repeat", "2")
TWO_MODES = (*SHORT, "--modes", "rerecord,reuse")


def test_json_has_the_documented_names(zincchat: Zincchat) -> None:
    outcome = zincchat(*TWO_MODES, "--json")
    assert outcome.code == 0
    report = outcome.json
    assert {"device", "driver", "model", "versions", "command", "probe_gb_s", "runs"} <= set(report)
    assert {"date", "host_cpu", "device_clocks", "model_sha256", "submit_hint", "queued_gap_us"} <= set(report)
    assert report["command"] == f"zincchat {' '.join(TWO_MODES)} --json"
    assert report["device_bytes"] == 150_000_000
    assert report["model_file_bytes"] == 98_000_000
    assert report["host_rss_bytes"] > 1_000_000
    assert [run["mode"] for run in report["runs"]] == ["rerecord", "reuse"]
    rerecord, reuse = report["runs"]
    assert set(rerecord["decode_tok_s"]) == set(rerecord["prefill_tok_s"]) == {"median", "p5", "p95"}
    assert rerecord["decode_tok_s"]["p5"] <= rerecord["decode_tok_s"]["median"] <= rerecord["decode_tok_s"]["p95"]
    assert rerecord["period_us"] == {"median": 10_000.0, "p5": 10_000.0, "p95": 10_000.0}
    assert rerecord["prefill_tok_s"]["median"] == pytest.approx(40)
    assert (rerecord["fusion"], rerecord["fusion_setting"], rerecord["barriers"]) == (True, "on", "needed")
    assert (rerecord["dispatches"], rerecord["barrier_count"]) == (10, 8)
    for step in ("build", "record", "patch", "submit", "wait", "readback"):
        assert isinstance(rerecord[f"{step}_us"], float)
        assert isinstance(rerecord[f"{step}_wall_us"], float)
    assert (rerecord["record_us"], rerecord["record_us_per_dispatch"]) == (20.0, 2.0)
    assert (rerecord["build_us"], rerecord["build_us_per_op"]) == (30.0, 3.0)
    assert (reuse["record_us"], reuse["record_us_per_dispatch"], reuse["build_us_per_op"]) == (0.0, None, None)
    assert reuse["patch_submit_us"] == 5.0
    assert reuse["exposed_cpu_us"] == 50.0
    # Sixteen decoded tokens and the first, each recorded anew; none where the recording is reused.
    assert (rerecord["recordings"], reuse["recordings"]) == (17, 0)
    assert rerecord["ratio_to_first"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert len(reuse["decode_tok_s_repeats"]) == 2


def test_gpu_totals_are_of_clean_tokens_and_kernels_of_stamped_ones(zincchat: Zincchat) -> None:
    run = zincchat(*SHORT, "--json").json["runs"][0]
    assert (run["gpu_total_us"], run["gpu_idle_before_us"]) == (8_800.0, 100.0)
    assert (run["kernels_us"], run["bubbles_us"]) == (7_000.0, 500.0)
    assert run["pieces_us"] == {"weights": 5_000.0, "kv": 500.0, "small": 1_000.0, "head": 500.0}
    assert run["stamped_tokens"] == 2 * 4
    assert run["stamp_cost_fraction"] == pytest.approx(0.25)
    assert run["edges_us"] == 11_000 - 7_000 - 500
    assert run["stamps_us"] == 600
    assert run["unexplained_us"] == pytest.approx(10_000 - 100 - 7_000 - 500 - 3_500 + 600)


def test_what_the_engine_measures_by_itself(zincchat: Zincchat) -> None:
    report = zincchat(*TWO_MODES, "--barriers", "every,needed", "--json").json
    assert (report["probe_gb_s"], report["queued_gap_us"]) == (9.7, 13.0)
    assert report["submit_hint"] == {"with_us": 8_800.0, "without_us": 8_888.0, "error_us": 44.0}
    # Once for each program, not for each mode, at the median decode step's position.
    assert FakeEngine.last.metered == [("every", True, 8), ("needed", True, 8)]
    for run in report["runs"]:
        assert run["starved_us"] == 100.0 - 13.0
        assert (run["bubbles_range_us"], run["bubbles_within_range"]) == ([200.0, 900.0], True)
        # 9.7 GB/s over 97 MB a token are 100 tokens a second.
        assert run["floor_fraction"] == pytest.approx(run["decode_tok_s"]["median"] / 100)


def test_what_cannot_be_measured_costs_nothing_else(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_arguments: object) -> float:
        raise EngineError("the GPU is too small")

    monkeypatch.setattr(FakeEngine, "probe_gb_s", property(fail))
    monkeypatch.setattr(FakeEngine, "measure_bubbles", fail)
    report = zincchat(*TWO_MODES, "--json").json
    assert (report["probe_gb_s"], report["runs"][0]["floor_fraction"]) == (None, None)
    assert report["runs"][0]["bubbles_range_us"] is None
    assert report["queued_gap_us"] == 13.0
    assert report["not_measured"][0] == "memory bandwidth: the GPU is too small"
    assert "not measured: memory bandwidth: the GPU is too small" in zincchat(*TWO_MODES).out


def passes_in_order() -> list[tuple[str, str, bool]]:
    """(mode, barriers, stamped) of each pass that the last engine ran, warm-up and measurement."""
    return [(mode, barriers, every > 0) for (mode, barriers, every), _ in groupby(FakeEngine.last.log)]


def test_passes_are_interleaved_and_every_second_repeat_is_reversed(zincchat: Zincchat) -> None:
    assert zincchat(*TWO_MODES, "--barriers", "every,needed").code == 0
    once = [
        (mode, barriers, stamped)
        for mode in ("rerecord", "reuse")
        for barriers in ("every", "needed")
        for stamped in (False, True)
    ]
    # Warm-up, repeat 1, repeat 2 reversed (it starts with the pass that repeat 1 ended with).
    assert passes_in_order() == [*once, *once, *once[-2::-1]]
    assert FakeEngine.last.stamp_every == 16  # as before


def test_all_modes_run_unless_some_are_named(zincchat: Zincchat) -> None:
    runs = zincchat(*SHORT, "--json").json["runs"]
    assert [run["mode"] for run in runs] == list(engine_package.MODES)


def test_a_mode_that_the_device_refuses_is_left_out_unless_named(
    zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(engine: FakeEngine, value: str) -> None:
        if value == "overlap":
            raise EngineError("mode overlap is not offered here: it does not run on this device")
        engine.__dict__["mode"] = value

    monkeypatch.setattr(FakeEngine, "mode", property(lambda engine: engine.__dict__["mode"], refuse), raising=False)
    monkeypatch.setattr(FakeEngine, "refused_modes", {"overlap": "it does not run on this device"})
    outcome = zincchat(*SHORT, "--json")
    assert outcome.code == 0
    assert "overlap" not in [run["mode"] for run in outcome.json["runs"]]
    assert outcome.err == "zincchat: without mode overlap: it does not run on this device\n"
    assert zincchat(*SHORT, "--modes", "reuse,overlap").code == 1


def test_a_mode_that_fails_at_its_first_token_is_left_out_too(
    zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def session(engine: FakeEngine) -> FakeSession:
        if engine.mode == "persistent":
            monkeypatch.setattr(FakeEngine, "refused_modes", {"persistent": "its self-test failed"})
            raise EngineError("mode persistent is not offered here: its self-test failed")
        return FakeSession(engine)

    monkeypatch.setattr(FakeEngine, "session", session)
    outcome = zincchat(*SHORT, "--json")
    assert outcome.code == 0 and outcome.err == "zincchat: without mode persistent: its self-test failed\n"
    assert [run["mode"] for run in outcome.json["runs"]] == list(engine_package.MODES[:-1])


REFUSED = {"flags": "a dispatch waited in vain"}


def refuse_flags(monkeypatch: pytest.MonkeyPatch, at_once: bool) -> None:
    """As an engine does that knows it, or that finds out at the first token."""

    def set_barriers(engine: FakeEngine, value: str) -> None:
        if value in engine.refused_barriers:
            raise EngineError(f"barriers {value} are not offered here: {engine.refused_barriers[value]}")
        engine.__dict__["barriers"] = value

    def session(engine: FakeEngine) -> FakeSession:
        if engine.barriers == "flags":
            monkeypatch.setattr(FakeEngine, "refused_barriers", REFUSED)
            raise EngineError(f"barriers flags are not offered here: {REFUSED['flags']}")
        return FakeSession(engine)

    policy = property(lambda engine: engine.__dict__["barriers"], set_barriers)
    monkeypatch.setattr(FakeEngine, "barriers", policy, raising=False)
    if at_once:
        monkeypatch.setattr(FakeEngine, "refused_barriers", REFUSED)
    else:
        monkeypatch.setattr(FakeEngine, "session", session)


@pytest.mark.parametrize("at_once", [True, False])
def test_a_barrier_policy_that_the_device_refuses_is_left_out(
    zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch, at_once: bool
) -> None:
    refuse_flags(monkeypatch, at_once)
    outcome = zincchat(*TWO_MODES, "--barriers", "flags,needed", "--json")
    assert outcome.code == 0
    assert [run["barriers"] for run in outcome.json["runs"]] == ["needed", "needed"]
    assert outcome.err == "zincchat: without barriers flags: a dispatch waited in vain\n"
    alone = zincchat(*TWO_MODES, "--barriers", "flags")
    assert (alone.code, alone.out) == (1, "")
    assert alone.err == "zincchat: barriers flags are not offered here: a dispatch waited in vain\n"


def test_without_a_policy_it_measures_the_engines_own(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    assert {run["barriers"] for run in zincchat(*TWO_MODES, "--json").json["runs"]} == {"needed"}
    monkeypatch.setattr(FakeEngine, "usual_barriers", "flags")
    report = zincchat(*TWO_MODES, "--json").json
    assert {run["barriers"] for run in report["runs"]} == {"flags"}
    text = zincchat(*TWO_MODES).out
    assert "barriers flags" in text and "no upper bound is known" in text.replace("\n  ", " ")
    assert "so GB/s and probe are too high" in text.replace("\n  ", " ")
    both = zincchat(*TWO_MODES, "--barriers", "flags,needed", "--json").json
    assert both["kernels"]["barriers"] == "needed"  # whose kernels load all they need themselves


def test_ctrl_c_between_two_measurements_ends_it(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "token_bytes", lambda *_: {"total": signal.raise_signal(signal.SIGINT) or 1})
    outcome = zincchat(*SHORT)
    assert (outcome.code, outcome.out, outcome.err) == (130, "", "zincchat: interrupted\n")
    assert FakeEngine.last.metered == []
    assert FakeEngine.last.closed


def test_fusion_takes_on_off_and_names_of_passes(zincchat: Zincchat) -> None:
    first, second = engine_package.FUSION_PASSES[:2]
    outcome = zincchat(*SHORT, "--modes", "reuse", "--fusion", f"off,on,{second}+{first},off", "--json")
    runs = outcome.json["runs"]
    assert [run["fusion_setting"] for run in runs] == ["off", "on", f"{first}+{second}"]
    assert [run["fusion"] for run in runs] == [False, True, True]
    assert FakeEngine.last.fused_with == {False, True, (first, second)}


@pytest.mark.parametrize("arguments", [(*SHORT, "--no-fusion"), ("--no-fusion", *SHORT), (*SHORT, "--fusion", "off")])
def test_fusion_off_in_every_spelling(zincchat: Zincchat, arguments: tuple[str, ...]) -> None:
    assert {run["fusion_setting"] for run in zincchat(*arguments, "--json").json["runs"]} == {"off"}


def test_prefill_and_decode_each_start_from_an_empty_context(zincchat: Zincchat) -> None:
    assert zincchat("bench", "--prefill", "8", "--tokens", "72", "--repeat", "2", "--modes", "reuse").code == 0
    prompts = FakeEngine.last.prompts
    # Prefill, clean pass, stamped pass in the middle of the clean one's positions; the second repeat is reversed.
    assert [len(prompt) for prompt in prompts] == [8, 1, 12, 8, 1, 12, 8, 12, 1]
    assert all(0 <= id_ < FakeEngine.last.model.vocab_size for prompt in prompts for id_ in prompt)
    assert len({tuple(prompt) for prompt in prompts}) == 3  # the same work each time
    assert {sampling.temperature for sampling in FakeEngine.last.sampled_with} == {0.0}


def test_the_first_token_is_no_decode_step(zincchat: Zincchat) -> None:
    report = zincchat(*SHORT, "--modes", "reuse", "--repeat", "1", "--json").json
    tokens = [mode for mode, _barriers, stamp_every in FakeEngine.last.log if stamp_every == 0]
    assert len(tokens) == (8 + 1) + (16 + 1)  # the warm-up is shorter
    run = report["runs"][0]
    assert run["decode_tok_s"]["p5"] == run["decode_tok_s"]["median"] == run["decode_tok_s"]["p95"]
    assert run["ratio_to_first"]["low"] is None


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


def test_the_articles_remedies_in_turn(zincchat: Zincchat) -> None:
    outcome = zincchat(*TWO_MODES, "--barriers", "every,needed", "--fusion", "on,off", "--json")
    found = {row["name"]: row for row in outcome.json["remedies"]}
    assert found["today"]["settings"] == {"mode": "rerecord", "barriers": "every", "fusion": False}
    assert (found["today"]["article_tok_s"], found["today"]["measured_tok_s"]) == (39.6, 100.0)
    assert found["reuse"]["gain"] == 1.0
    assert found["pipelined"]["measured_tok_s"] is None
    text = zincchat(*TWO_MODES, "--barriers", "every", "--fusion", "off").out
    reuse = text.split("remedies in turn")[1].splitlines()[2]
    assert reuse.split() == ["reuse", "reuse", "every", "off", "100", "1.000", "45.0"]
    assert "remedies in turn" not in zincchat(*TWO_MODES).out


def test_against_an_earlier_bench(zincchat: Zincchat, tmp_path: Path) -> None:
    report = zincchat(*TWO_MODES, "--json").json
    report["driver"] = "fakepipe 0.9"
    for run in report["runs"]:
        run["decode_tok_s_repeats"] = [rate / 50 for rate in run["decode_tok_s_repeats"]]
        run["decode_tok_s"] = {name: rate / 50 for name, rate in run["decode_tok_s"].items()}
    file = tmp_path / "before.json"
    file.write_text(json.dumps(report))
    now = zincchat(*SHORT, "--modes", "reuse,overlap", "--json", "--against", str(file)).json
    against = now["against"]
    assert against["differs"] == [{"what": "driver", "then": "fakepipe 0.9", "now": "fakepipe 1.0"}]
    assert [run["mode"] for run in against["runs"]] == ["reuse"]
    assert against["runs"][0]["ratio"]["median"] > 1
    assert against["only_then"] == ["rerecord barriers=needed fusion=on"]
    assert against["only_now"] == ["overlap barriers=needed fusion=on"]
    for form in ((), ("--markdown",)):
        text = zincchat(*SHORT, "--modes", "reuse", *form, "--against", str(file)).out
        assert "fakepipe 0.9 then, fakepipe 1.0 now" in text


MEASURED = Tuning("measured", {"Q4_0 x 4096": 32}, {"head Q6_K 32000 x 4096": Division(4, 4, 132)})
NEAR_ONLY = replace(MEASURED, near_only=("head Q6_K 32000 x 4096",))


def test_it_says_how_matrices_are_divided(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    assert zincchat(*SHORT, "--json").json["tuning"] == {
        "origin": "usual", "lanes": {}, "divisions": {}, "near_only": [],
    }  # fmt: skip
    assert "matrices divided as usual" in zincchat(*SHORT).out
    monkeypatch.setattr(FakeEngine, "tuning", MEASURED)
    divided = {"head Q6_K 32000 x 4096": {"rows": 4, "teams": 4, "workgroups": 132}}
    assert zincchat(*SHORT, "--json").json["tuning"]["divisions"] == divided
    line = "matrices divided as measured on this device: Q4_0 x 4096 by 32 lanes; 1 matrix otherwise than usual"
    assert line in zincchat(*SHORT).out.splitlines()
    assert line.replace("_", "\\_") in zincchat(*SHORT, "--markdown").out
    monkeypatch.setattr(FakeEngine, "tuning", NEAR_ONLY)
    assert zincchat(*SHORT, "--json").json["tuning"]["near_only"] == ["head Q6_K 32000 x 4096"]
    assert f"{line}, 1 of them only at up to 512 tokens of context" in " ".join(zincchat(*SHORT).out.split())


def test_another_division_is_a_difference(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "then.json"
    file.write_text(zincchat(*SHORT, "--json").out)
    monkeypatch.setattr(FakeEngine, "tuning", MEASURED)
    differs = zincchat(*SHORT, "--json", "--against", str(file)).json["against"]["differs"]
    assert [(each["what"], each["then"]) for each in differs] == [("division of matrices", "as usual")]
    assert differs[0]["now"].startswith("Q4_0 x 4096 32; head Q6_K")
    file.write_text(zincchat(*SHORT, "--json").out)
    older = json.loads(file.read_text())
    del older["tuning"]["near_only"]
    monkeypatch.setattr(FakeEngine, "tuning", replace(MEASURED, origin="remembered"))
    for report in (file.read_text(), json.dumps(older)):
        file.write_text(report)
        assert zincchat(*SHORT, "--json", "--against", str(file)).json["against"]["differs"] == []
    monkeypatch.setattr(FakeEngine, "tuning", NEAR_ONLY)
    (differs,) = zincchat(*SHORT, "--json", "--against", str(file)).json["against"]["differs"]
    assert differs["now"] == f"{differs['then']}; at up to 512 tokens of context only: head Q6_K 32000 x 4096"


@pytest.mark.parametrize(("option", "given"), [((), {}), (("--no-tuning",), {"tuning": False})])
def test_the_measurement_of_divisions_can_be_left_out(
    zincchat: Zincchat, option: tuple[str, ...], given: dict[str, bool]
) -> None:
    assert zincchat(*SHORT, *option).code == 0
    assert {key: value for key, value in FakeEngine.opened[-1].items() if key == "tuning"} == given
