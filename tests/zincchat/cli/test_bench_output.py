"""``zincchat bench`` on screen and as Markdown: words, units, columns that fit, and the table of kernels."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

import engine as engine_package
from engine import TokenTiming, TokenTrace
from tests.made_traces import made_trace
from tests.zincchat.cli.conftest import Outcome
from zincchat.bench.cells import kernel_setting
from zincchat.cli.output import bytes_text

Zincchat = Callable[..., Outcome]

SHORT = ("bench", "--prefill", "8", "--tokens", "16", "--repeat", "2")
TWO_MODES = (*SHORT, "--modes", "rerecord,reuse")


def test_the_tables_name_device_settings_and_units(zincchat: Zincchat) -> None:
    outcome = zincchat(*TWO_MODES, "--barriers", "every,needed", "--no-fusion")
    assert outcome.code == 0
    assert "Fake-1M (Q4_1, 98 MB) on Fake llvmpipe (software" in outcome.out
    assert "fusion off" in outcome.out
    assert max(map(len, outcome.out.splitlines())) <= 100
    rows = [line.split() for line in outcome.out.splitlines() if line.startswith("rerecord")]
    assert [row[1].rstrip(":") for row in rows] == ["every", "needed"] * 5
    del rows[6:8]  # the verdicts
    speed, period, trust, cpu = rows[1::2]
    assert speed[6:8] == ["10.000", "10.000"]
    assert rows[0][4:6] == ["1.000", "-"]
    # period, idle, kernels, bubbles, edges, stamps, unexplained, starved in milliseconds
    assert period[2:] == ["10.000", "0.100", "7.000", "0.500", "3.500", "0.600", "-0.500", "0.087"]
    # GPU total in milliseconds, what stamps add, what is unexplained, bounds, whether the bubbles lie in them
    assert trust[2:] == ["8.800", "+25.0%", "-5.0%", "±", "1.0%", "0.200-0.900", "yes"]
    assert "reuse needed: bound by bandwidth: 143% of the bus" in outcome.out
    assert "stamps add more than 10% in 4 of 4 rows" in outcome.out
    # build, record, submit with patch, exposed; us an op and a dispatch; dispatches, barriers, recordings
    assert cpu[2:] == ["0.030", "0.020", "0.005", "0.050", "3.00", "2.00", "10", "8", "17"]
    assert "97 MB a token at 9.7 GB/s, as measured here, is 100 tok/s" in outcome.out
    assert "with it, 8.888 without (+1.0% ± 0.5%)" in outcome.out
    assert "2 repeats: the interval covers 50.0% at most" in outcome.out


def test_one_repeat_is_not_interleaved(zincchat: Zincchat) -> None:
    once = ("bench", "--prefill", "8", "--tokens", "16", "--repeat", "1", "--modes", "reuse")
    assert "from an empty context, 1 repeat;" in zincchat(*once).out
    assert "from an empty context, 1 repeat," in zincchat(*once, "--markdown").out


def test_one_token_is_no_plural(zincchat: Zincchat) -> None:
    once = ("bench", "--prefill", "1", "--tokens", "1", "--repeat", "2", "--modes", "reuse")
    for form in ((), ("--markdown",)):
        assert "1 tokens" not in " ".join(zincchat(*once, *form).out.split())


def test_one_repeat_has_no_interval(zincchat: Zincchat) -> None:
    text = zincchat(*TWO_MODES, "--repeat", "1").out
    assert "1 repeat: no interval; --repeat 6 reaches 95%" in text
    assert "covers" not in text


@pytest.mark.parametrize(("count", "text"), [(1, "1 stamped token"), (2, "2 stamped tokens")])
def test_the_kernels_say_of_how_many_stamped_tokens_they_are(count: int, text: str) -> None:
    setting = {"mode": "reuse", "fusion_setting": "on", "barriers": "needed", "stamped_tokens": count}
    assert kernel_setting(setting) == f"reuse, fusion on, barriers needed, {text}"


@pytest.mark.parametrize(
    ("count", "text"), [(287_000, "287 kB"), (1_000_000, "1 MB"), (98_000_000, "98 MB"), (2_500_000_000, "2.5 GB")]
)
def test_sizes_have_a_unit_that_fits(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_output_survives_a_plain_ascii_pipe(zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", plain)
    assert zincchat(*SHORT).code == 0
    plain.seek(0)
    assert "Decode speed" in plain.read()


@pytest.mark.parametrize(("columns", "most"), [(None, 100), (80, 80), (300, 100)])
def test_the_widest_tables_fit(
    zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch, columns: int | None, most: int
) -> None:
    if columns:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))
    passes = "+".join(engine_package.FUSION_PASSES)
    outcome = zincchat(*SHORT, "--barriers", "every,needed", "--fusion", f"on,off,{passes}")
    lines = outcome.out.splitlines()
    assert max(len(line) for line in lines if passes not in line) <= most
    assert f"fusion A: {passes}" in outcome.out.replace("\n  ", " ")
    # A table in parts says in each what its rows are.
    assert all(line.startswith("mode  ") for line in lines if "95% interval" in line or "of floor" in line)


def test_markdown_is_a_table_with_a_caption(zincchat: Zincchat) -> None:
    lines = zincchat(*TWO_MODES, "--markdown").out.splitlines()
    table = lines[: lines.index("")]
    assert len(table) == 2 + 2
    assert len({line.replace("\\|", "").count("|") for line in table}) == 1
    caption = " ".join(lines[len(table) :])
    for part in ("Fake-1M (Q4\\_1, 98 MB) on Fake llvmpipe", "fakepipe 1.0", "UTC", f"`zincchat {' '.join(TWO_MODES)}"):
        assert part in caption


def test_the_kernels_of_the_first_fused_mode(zincchat: Zincchat) -> None:
    arguments = (*SHORT, "--modes", "persistent,reuse,pipelined", "--fusion", "off,on")
    kernels = zincchat(*arguments, "--json").json["kernels"]
    assert (kernels["mode"], kernels["fusion_setting"], kernels["barriers"]) == ("reuse", "on", "needed")
    assert kernels["stamped_tokens"] == 2 * 4
    # A third of 7 ms each; the probe reads 9.7 GB/s.
    embed, qkv, head = kernels["kinds"]
    assert (qkv["name"], qkv["weight_type"], qkv["count"], qkv["bytes_moved"]) == ("attn_qkv", "Q4_1", 1, 4096)
    assert qkv["time_us"] == pytest.approx(7000 / 3)
    assert qkv["gb_s"] == pytest.approx(4096 / (7000 / 3) / 1e3)
    assert qkv["probe_fraction"] == pytest.approx(qkv["gb_s"] / 9.7)
    assert (embed["piece"], head["piece"]) == ("small", "head")
    text = zincchat(*arguments).out
    assert "The kernels of reuse, fusion on, barriers needed, 8 stamped tokens*" in text
    assert ["attn_qkv", "Q4_1", "1", "2,333.3", "2,333", "4.1", "0.0018", "0.0%"] in [
        x.split() for x in text.splitlines()
    ]
    assert "| attn_qkv | Q4_1 | 1 | 2,333.3 | 2,333 | 4.1 | 0.0018 | 0.0% |" in zincchat(*arguments, "--markdown").out
    alone = zincchat(*SHORT, "--modes", "reuse", "--no-fusion", "--json").json["kernels"]
    assert alone["fusion_setting"] == "off"


def test_without_a_clock_in_kernels_there_is_no_table_of_them(
    zincchat: Zincchat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def between_bounds(record: TokenTiming) -> TokenTrace:
        return made_trace(replace(record, kernels_us=None, bubbles_us=None))

    monkeypatch.setattr("tests.zincchat.cli.fake_engine.made_trace", between_bounds)
    assert zincchat(*TWO_MODES, "--json").json["kernels"] is None
    assert "no table of kernels: kernels cannot read a clock on this device" in zincchat(*TWO_MODES).out
    assert "No table of kernels" in zincchat(*TWO_MODES, "--markdown").out
