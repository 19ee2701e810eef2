"""A bench for people: who measured what, then speed, the token's period and the CPU's work, a row a setting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine import loads_ahead, waits_in_memory
from zincchat.bench import cells
from zincchat.bench.cells import Column
from zincchat.bench.layout import fitted, wrapped
from zincchat.cli.output import bytes_text, rate_text

WIDTH = 100  # columns, where there is no terminal that says otherwise
_TRUSTED_STAMP_COST = 0.1  # beyond it a stamped token's parts are not the clean one's
_LONGEST_FUSION = 12  # characters in a row; a longer list of passes is named by a letter

_TERMS = "GPU idle + kernels + bubbles + edges - stamps + unexplained"

_SPEED: tuple[Column, ...] = (
    ("tok/s", lambda run: rate_text(run["decode_tok_s"]["median"])),
    ("p5-p95", lambda run: cells.ends(run["decode_tok_s"]["p5"], run["decode_tok_s"]["p95"])),
    ("x first", lambda run: cells.ratio(run["ratio_to_first"])),
    ("95% interval", lambda run: cells.interval(run["ratio_to_first"])),
    ("ms p50", lambda run: cells.ms(run["period_us"]["median"])),
    ("ms p95", lambda run: cells.ms(run["period_us"]["p95"])),
    ("GB/s", lambda run: f"{run['decode_gb_s']:,.1f}"),
    ("of floor", lambda run: cells.percent(run["floor_fraction"])),
)
_PERIOD: tuple[Column, ...] = (
    ("period", lambda run: cells.ms(run["period_us"]["median"])),
    ("GPU idle", lambda run: cells.ms(run["gpu_idle_before_us"])),
    ("kernels*", lambda run: cells.ms(run["kernels_us"])),
    ("bubbles*", cells.bubbles),
    ("edges*", lambda run: cells.ms(run["edges_us"])),
    ("stamps", lambda run: cells.ms(run["stamps_us"])),
    ("unexplained", lambda run: cells.ms(run["unexplained_us"])),
    ("starved", lambda run: cells.ms(run["starved_us"])),
)
_TRUST: tuple[Column, ...] = (
    ("GPU clean", lambda run: cells.ms(run["gpu_total_us"])),
    ("stamps add", lambda run: cells.percent(run["stamp_cost_fraction"], sign=True)),
    ("unexplained", cells.unexplained),
    ("bounds of bubbles", cells.bubbles_between),
    ("within", lambda run: _yes_no(run["bubbles_within_range"])),
)
_CPU: tuple[Column, ...] = (
    ("build", lambda run: cells.ms(run["build_us"])),
    ("record", lambda run: cells.ms(run["record_us"])),
    ("submit", lambda run: cells.ms(run["patch_submit_us"])),
    ("exposed", lambda run: cells.ms(run["exposed_cpu_us"])),
    ("us/op", lambda run: cells.us(run["build_us_per_op"])),
    ("us/disp", lambda run: cells.us(run["record_us_per_dispatch"])),
    ("dispatches", lambda run: str(run["dispatches"])),
    ("barriers", lambda run: str(run["barrier_count"])),
    ("recorded", lambda run: str(run["recordings"])),
)


def bench_text(report: dict[str, Any], width: int = WIDTH) -> str:
    """The whole report in lines of at most ``width`` columns (as long as a name or a table's one column fits)."""
    runs, letters = _lettered(report["runs"])
    paragraphs = [
        wrapped(_head(report), width),
        _table("Decode speed", runs, _SPEED, width),
        _table(
            f"One token on the GPU, ms: period = {_TERMS} (each a median: they need not add up)", runs, _PERIOD, width
        ),
        _table("How far to trust that, GPU ms", runs, _TRUST, width),
        ["Verdict", *wrapped(_verdicts(runs), width)],
        _table("The CPU's part, ms of thread time a token", runs, _CPU, width),
    ]
    if report["kernels"] is not None:
        paragraphs.append(_kernels(report["kernels"], width))
    if _has_remedies(report):
        paragraphs.append(_remedies(report["remedies"], width))
    paragraphs.append(wrapped([*letters, *_notes(report)], width))
    if report.get("against"):
        paragraphs.append(_against(report["against"], width))
    return "\n\n".join("\n".join(lines) for lines in paragraphs)


def _head(report: dict[str, Any]) -> list[str]:
    versions = report["versions"]
    prefill = report["runs"][0]["prefill_tok_s"]
    shared = cells.common_switches(report["runs"])
    lines = [
        f"{cells.model(report)} on {cells.device(report)}",
        f"driver {report['driver']}, Vulkan {versions['vulkan_api']}; {cells.host(report)}",
        f"zincchat {versions['zincchat']}, Python {versions['python']}; {cells.date(report)}",
        f"clocks {cells.clocks(report)}",
    ]
    lines.append(cells.tuning(report["tuning"]))
    lines.append(
        f"greedy decode of {cells.tokens(report['decode_tokens'])} from an empty context, {cells.repeats(report)}"
        f"{f'; {shared}' if shared else ''}"
    )
    lines.append(
        f"prefill of {cells.tokens(report['prefill_tokens'])}: {rate_text(prefill['median'])} tok/s"
        f" ({cells.ends(prefill['p5'], prefill['p95'])}), whatever the setting"
    )
    lines.append(f"memory: process {bytes_text(report['host_rss_bytes'])}, device {bytes_text(report['device_bytes'])}")
    return lines


def _verdicts(runs: Sequence[dict[str, Any]]) -> list[str]:
    lines = []
    for run in runs:
        label = " ".join(cells.switch(run, name) for name in cells.switch_columns(runs))
        lines.append(f"{label}: {run['verdict']['line'] if run['verdict'] else 'its terms were not measured'}")
    return lines


def _kernels(kernels: dict[str, Any], width: int) -> list[str]:
    """A row a kind of kernel, in the program's order."""
    header, rows = cells.kernel_grid(kernels)
    title = f"The kernels of {cells.kernel_setting(kernels)}*: medians over dispatches"
    return [*wrapped([title], width), *fitted(header, rows, 2, width)]


def _remedies(remedies: Sequence[dict[str, Any]], width: int) -> list[str]:
    """The rows that were run, and the article's figures beside them."""
    header = ["remedies in turn", "mode", "barriers", "fusion", "tok/s", "x above", "article's tok/s"]
    rows = [
        [
            row["name"],
            row["settings"]["mode"],
            row["settings"]["barriers"],
            "on" if row["settings"]["fusion"] else "off",
            rate_text(row["measured_tok_s"]),
            "-" if row["gain"] is None else f"{row['gain']:.3f}",
            rate_text(row["article_tok_s"]),
        ]
        for row in remedies
        if row["measured_tok_s"] is not None
    ]
    title = "The article's remedies as measured here (its own figures: Qwen3.5-9B, RX 9070 XT, modelled)"
    return [*wrapped([title], width), *fitted(header, rows, 4, width)]


def _has_remedies(report: dict[str, Any]) -> bool:
    return sum(row["measured_tok_s"] is not None for row in report["remedies"]) > 1


def _notes(report: dict[str, Any]) -> list[str]:
    first = report["runs"][0]
    stamped = min(run["stamped_tokens"] for run in report["runs"])
    lines = []
    if len(report["runs"]) > 1:
        lines.append(f"x first: against {first['mode']}, the first row, repeat by repeat (medians over repeats)")
    lines.append(
        "ms p50, p95 and all below: over tokens; submit includes patching the parameters; us/op, us/disp: build and"
        f" record over what they built; recorded: command buffers in a run of {cells.tokens(report['decode_tokens'])}"
    )
    if _has_remedies(report):
        lines.append("tok/s: under decode speed tokens over wall time, under remedies one over the median period")
    if stamped:
        lines.append(
            f"* on {stamped} or more stamped tokens a row, with what stamps add; stamps: that by itself. unexplained is"
            " of tokens next to each other, not of these medians. within: bubbles stamped in turn with the bounds, not"
            " those above, lie between them, errors allowed for"
        )
    if any(waits_in_memory(run["mode"], run["barriers"]) for run in report["runs"]):
        lines.append(
            "barriers flags: kernels wait in memory, and the column barriers counts the waits; bubbles: from a kernel's"
            " last end to the next one's start behind its wait, its weights on the way by then; no upper bound is known"
        )
    if report["kernels"] is not None:
        lines.append(
            "n: dispatches a token; us, kB: of one; us/token: of all n, which may run beside others; probe: share of"
            " the bandwidth below, which what is read from a cache can exceed"
        )
        if loads_ahead(report["kernels"]["mode"], report["kernels"]["barriers"]):
            lines.append(
                "the weights of these kernels were on their way before they started, so GB/s and probe are too high:"
                " --barriers needed shows what they reach by themselves"
            )
    elif stamped:
        lines.append("no table of kernels: kernels cannot read a clock on this device")
    if report["probe_gb_s"] is not None and first["floor_tok_s"] is not None:
        lines.append(
            f"floor: {bytes_text(first['token_bytes'])} a token at {report['probe_gb_s']:,.1f} GB/s, as measured"
            f" here, is {rate_text(first['floor_tok_s'])} tok/s"
        )
    if report["queued_gap_us"] is not None:
        lines.append(f"starved: GPU idle beyond the {report['queued_gap_us']:.1f} us between two queued submissions")
    if report["submit_hint"] is not None:
        lines.append(hint_text(report["submit_hint"]))
    beyond = [run for run in report["runs"] if (run["stamp_cost_fraction"] or 0.0) > _TRUSTED_STAMP_COST]
    if beyond:
        lines.append(
            f"stamps add more than {_TRUSTED_STAMP_COST:.0%} in {len(beyond)} of {len(report['runs'])} rows: there,"
            " kernels and bubbles are not the clean token's"
        )
    lines += [f"not measured: {problem}" for problem in report["not_measured"]]
    lines += _load_note(report)
    if report["repeats"] < 6 and len(report["runs"]) > 1:
        at_most = f"the interval covers {cells.percent(report['interval_coverage_at_most'])} at most"
        covered = "1 repeat: no interval" if report["repeats"] == 1 else f"{report['repeats']} repeats: {at_most}"
        lines.append(f"{covered}; --repeat 6 reaches 95%")
    lines.append("docs/bench.md says how each figure is measured")
    return lines


def _load_note(report: dict[str, Any]) -> list[str]:
    """A software device shares the processor: more runnable threads than it has CPUs are someone else's."""
    load = (report["device_clocks"]["before"] or {}).get("load_1min")
    if load is None or load <= 1.25 * report["host_cpus"]:
        return []
    return [f"load {load:.1f} on {report['host_cpus']} CPUs: other work was running; repeat this on a quiet computer"]


def hint_text(hint: dict[str, Any]) -> str:
    """What the one-time-submit hint is worth on this device; a difference within its error is none."""
    difference = hint["without_us"] - hint["with_us"]
    fraction = cells.percent(difference / hint["with_us"], sign=True)
    error = cells.percent(hint["error_us"] / hint["with_us"])
    none = ": no difference" if abs(difference) <= hint["error_us"] else ""
    return (
        f"one-time-submit hint: GPU {cells.ms(hint['with_us'])} ms with it, {cells.ms(hint['without_us'])} without"
        f" ({fraction} ± {error}{none})"
    )


def _table(title: str, runs: Sequence[dict[str, Any]], columns: Sequence[Column], width: int) -> list[str]:
    header, rows, switches = cells.grid(runs, columns)
    return [*wrapped([title], width), *fitted(header, rows, switches, width)]


def _against(against: dict[str, Any], width: int) -> list[str]:
    what = ", ".join(str(part) for part in (against["date"], against["version"]) if part)
    lines = [f"Against {against['file']}{f' ({what})' if what else ''}"]
    lines += [f"differs: {each['what']} {each['then']} then, {each['now']} now" for each in against["differs"]]
    lines += [
        f"only {when}: {'; '.join(against[f'only_{when}'])}" for when in ("then", "now") if against[f"only_{when}"]
    ]
    lines = wrapped(lines, width)
    if not against["runs"]:
        return [*lines, "no setting is in both"]
    runs, letters = _lettered(against["runs"])
    columns: tuple[Column, ...] = (
        ("tok/s then", lambda run: rate_text(run["decode_tok_s"]["then"])),
        ("now", lambda run: rate_text(run["decode_tok_s"]["now"])),
        ("now/then", lambda run: cells.ratio(run["ratio"])),
        ("95% interval", lambda run: cells.interval(run["ratio"])),
        ("prefill now/then", lambda run: f"{run['prefill_ratio']:.3f}"),
    )
    header, rows, switches = cells.grid(runs, columns)
    return [*lines, *wrapped(letters, width), *fitted(header, rows, switches, width)]


def _lettered(runs: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[str]]:
    """The runs with a letter in place of a long list of passes, and the lines that say what the letters mean."""
    fusions = dict.fromkeys(cells.switch(run, "fusion") for run in runs)
    long = [fusion for fusion in fusions if len(fusion) > _LONGEST_FUSION]
    if not long or len(fusions) == 1:
        return list(runs), []
    letters = {fusion: chr(ord("A") + index) for index, fusion in enumerate(long)}
    return (
        [{**run, "fusion_setting": letters.get(run["fusion_setting"], run["fusion_setting"])} for run in runs],
        [f"fusion {letter}: {fusion}" for fusion, letter in letters.items()],
    )


def _yes_no(value: bool | None) -> str:
    return "-" if value is None else "yes" if value else "no"
