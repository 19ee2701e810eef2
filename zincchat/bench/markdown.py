"""A bench as a Markdown table with a caption that says what it was measured with, ready for docs/."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zincchat.bench import cells
from zincchat.bench.cells import Column
from zincchat.cli.output import rate_text

_COLUMNS: tuple[Column, ...] = (
    ("tok/s (p5-p95)", lambda run: _rate(run["decode_tok_s"])),
    ("× first (95%)", lambda run: _ratio(run["ratio_to_first"])),
    ("token p50 / p95", lambda run: f"{cells.ms(run['period_us']['median'])} / {cells.ms(run['period_us']['p95'])}"),
    ("of floor", lambda run: cells.percent(run["floor_fraction"])),
    ("build", lambda run: cells.ms(run["build_us"])),
    ("record", lambda run: cells.ms(run["record_us"])),
    ("exposed CPU", lambda run: cells.ms(run["exposed_cpu_us"])),
    ("GPU idle", lambda run: cells.ms(run["gpu_idle_before_us"])),
    ("kernels", lambda run: cells.ms(run["kernels_us"])),
    ("bubbles", cells.bubbles),
    ("edges", lambda run: cells.ms(run["edges_us"])),
    ("bubbles between", cells.bubbles_between),
    ("stamps", lambda run: cells.ms(run["stamps_us"])),
    ("unexplained", cells.unexplained),
    ("stamps add", lambda run: cells.percent(run["stamp_cost_fraction"], sign=True)),
    ("dispatches", lambda run: str(run["dispatches"])),
    ("barriers", lambda run: str(run["barrier_count"])),
)


def bench_markdown(report: dict[str, Any]) -> str:
    """The tables of all runs and of the kernels, with captions; then, if there is one, what an earlier bench says."""
    text = f"{_table(report['runs'], _COLUMNS)}\n\n{_caption(report)}\n\n{_kernels(report['kernels'])}"
    if report.get("against"):
        text += f"\n\n{_against(report['against'])}"
    return text


def _caption(report: dict[str, Any]) -> str:
    versions = report["versions"]
    prefill = report["runs"][0]["prefill_tok_s"]
    shared = cells.common_switches(report["runs"])
    floor = ""
    if report["probe_gb_s"] is not None:
        floor = f" Measured bandwidth {report['probe_gb_s']:,.1f} GB/s."
    return (
        f"*{_escaped(cells.model(report))} on {_escaped(cells.device(report))},"
        f" driver {_escaped(str(report['driver']))}, Vulkan {versions['vulkan_api']}; {_escaped(cells.host(report))};"
        f" zincchat {versions['zincchat']}, Python {versions['python']}; {cells.date(report)};"
        f" clocks {_escaped(cells.clocks(report))}; {_escaped(cells.tuning(report['tuning']))}."
        f" Greedy, {cells.tokens(report['decode_tokens'])} from an empty context,"
        f" {cells.repeats(report)}{f', {shared}' if shared else ''}; medians, milliseconds a token."
        f" Prefill of {cells.tokens(report['prefill_tokens'])} {_rate(prefill)} tok/s.{floor}*\n"
        f"*Command:* `{report['command']}`"
    )


def _kernels(kernels: dict[str, Any] | None) -> str:
    if kernels is None:
        return "*No table of kernels: none was stamped, or kernels cannot read a clock on this device.*"
    header, rows = cells.kernel_grid(kernels)
    caption = (
        f"*The kernels of {_escaped(cells.kernel_setting(kernels))}; medians over dispatches: n a token,"
        " us and kB of one, and its share of the probe's bandwidth.*"
    )
    return f"{_lines(header, rows, 2)}\n\n{caption}"


def _against(against: dict[str, Any]) -> str:
    columns: tuple[Column, ...] = (
        ("tok/s then", lambda run: rate_text(run["decode_tok_s"]["then"])),
        ("tok/s now", lambda run: rate_text(run["decode_tok_s"]["now"])),
        ("now / then (95%)", lambda run: _ratio(run["ratio"])),
        ("prefill now / then", lambda run: f"{run['prefill_ratio']:.3f}"),
    )
    notes = [f"{each['what']}: {each['then']} then, {each['now']} now" for each in against["differs"]]
    notes += [f"only then: {setting}" for setting in against["only_then"]]
    notes += [f"only now: {setting}" for setting in against["only_now"]]
    caption = f"*Against {_escaped(str(against['file']))}, {against['date'] or 'no date'}."
    caption += f" Differs: {_escaped('; '.join(notes))}.*" if notes else "*"
    return f"{_table(against['runs'], columns)}\n\n{caption}" if against["runs"] else caption


def _table(runs: Sequence[dict[str, Any]], columns: Sequence[Column]) -> str:
    return _lines(*cells.grid(runs, columns))


def _lines(header: Sequence[str], rows: Sequence[Sequence[str]], switches: int) -> str:
    rule = ["---"] * switches + ["---:"] * (len(header) - switches)
    return "\n".join(f"| {' | '.join(line)} |" for line in (header, rule, *rows))


def _rate(value: dict[str, float]) -> str:
    return f"{rate_text(value['median'])} ({cells.ends(value['p5'], value['p95'])})"


def _ratio(value: dict[str, float | None]) -> str:
    interval = cells.interval(value)
    return cells.ratio(value) if interval == "-" else f"{cells.ratio(value)} ({interval})"


def _escaped(text: str) -> str:
    """Text in which Markdown finds no emphasis and no table cell."""
    for character in "\\*_|`":
        text = text.replace(character, f"\\{character}")
    return text
