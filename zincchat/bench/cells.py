"""How single figures of a bench are written, in the table and in Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zincchat.cli.output import bytes_text, rate_text

SWITCHES = ("mode", "barriers", "fusion")
Column = tuple[str, Callable[[dict[str, Any]], str]]


def grid(runs: Sequence[dict[str, Any]], columns: Sequence[Column]) -> tuple[list[str], list[list[str]], int]:
    """Header, rows and how many columns at the left are switches; a column without any figure is left out."""
    switches = switch_columns(runs)
    shown = [(name, [text(run) for run in runs]) for name, text in columns]
    shown = [(name, values) for name, values in shown if any(value != "-" for value in values)]
    header = [*switches, *(name for name, _ in shown)]
    rows = [
        [*(switch(run, name) for name in switches), *(values[index] for _, values in shown)]
        for index, run in enumerate(runs)
    ]
    return header, rows, len(switches)


def switch_columns(runs: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The switches that tell these runs apart; the mode always."""
    return tuple(name for name in SWITCHES if name == "mode" or len({switch(run, name) for run in runs}) > 1)


def switch(run: dict[str, Any], name: str) -> str:
    """A run's own value of one of SWITCHES."""
    return str(run["fusion_setting"] if name == "fusion" else run[name])


def common_switches(runs: Sequence[dict[str, Any]]) -> str:
    """The switches that all runs share, in words."""
    shared = [name for name in SWITCHES if name not in switch_columns(runs)]
    return ", ".join(f"{name} {switch(runs[0], name)}" for name in shared)


def ms(value_us: float | None) -> str:
    """Microseconds as milliseconds, to the microsecond."""
    return "-" if value_us is None else f"{value_us / 1e3:.3f}"


def us(value_us: float | None) -> str:
    """Microseconds with two decimals."""
    return "-" if value_us is None else f"{value_us:.2f}"


def percent(fraction: float | None, sign: bool = False) -> str:
    """A fraction as a percentage; with its sign where it is a difference."""
    if fraction is None:
        return "-"
    return f"{fraction * 100:{'+' if sign else ''}.1f}%"


def unexplained(run: dict[str, Any]) -> str:
    """What no term accounts for, of the period, and half its interval."""
    if run["unexplained_fraction"] is None:
        return "-"
    error = run["unexplained_error_us"] / run["period_us"]["median"]
    return f"{percent(run['unexplained_fraction'], sign=True)} ± {percent(error)}"


def ends(low: float | None, high: float | None, text: Any = rate_text) -> str:
    """A range, written "low-high"."""
    return "-" if low is None or high is None else f"{text(low)}-{text(high)}"


def ratio(value: dict[str, float | None]) -> str:
    """A ratio by itself."""
    return "-" if value["median"] is None else f"{value['median']:.3f}"


def interval(value: dict[str, float | None]) -> str:
    """A ratio's interval; a dash for the baseline, whose ratio to itself is exact."""
    if value["low"] == value["high"]:
        return "-"
    return ends(value["low"], value["high"], lambda end: f"{end:.3f}")


def bubbles(run: dict[str, Any]) -> str:
    """The stamped bubbles; where the device's kernels cannot read a clock, their bounds."""
    if run["bubbles_us"] is None and run["bubbles_range_us"] is not None:
        return bubbles_between(run)
    return ms(run["bubbles_us"])


def bubbles_between(run: dict[str, Any]) -> str:
    """The two bounds on the bubbles; where no upper one is known, the lower one."""
    low, high = run["bubbles_range_us"] or (None, None)
    if low is not None and high is None:
        return f">= {ms(low)}"
    return ends(low, high, ms)


def kernel_grid(kernels: dict[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows of the kinds of kernels: n of them a token, us and kB of one. The first two columns are words."""
    header = ["kernel", "type", "n", "us", "us/token", "kB", "GB/s", "probe"]
    rows = [
        [
            kind["name"],
            kind["weight_type"] or "-",
            f"{kind['count']:g}",
            f"{kind['time_us']:,.1f}",
            f"{kind['count'] * kind['time_us']:,.0f}",
            f"{kind['bytes_moved'] / 1e3:,.1f}",
            _bandwidth(kind["gb_s"]),
            percent(kind["probe_fraction"]),
        ]
        for kind in kernels["kinds"]
    ]
    return header, rows


def _bandwidth(gb_s: float | None) -> str:
    if not gb_s:
        return "-"
    return f"{gb_s:,.1f}" if gb_s >= 0.1 else f"{gb_s:.2g}"


def kernel_setting(kernels: dict[str, Any]) -> str:
    """Whose kernels these are."""
    return ", ".join(
        (
            kernels["mode"],
            f"fusion {kernels['fusion_setting']}",
            f"barriers {kernels['barriers']}",
            tokens(kernels["stamped_tokens"], "stamped "),
        )
    )


def device(report: dict[str, Any]) -> str:
    """The device's name, with a word where it is software."""
    return f"{report['device']} (software: runs on the CPU)" if report["software_device"] else str(report["device"])


def model(report: dict[str, Any]) -> str:
    """The model's name, quantisation and size."""
    return f"{report['model']} ({report['quantisation']}, {bytes_text(report['model_file_bytes'])})"


def tuning(value: dict[str, Any]) -> str:
    """How rows are divided, in one line; what divides otherwise than usual is only counted."""
    if value["origin"] == "usual":
        return "matrices divided as usual"
    lanes = ", ".join(f"{name} by {count} lanes" for name, count in value["lanes"].items()) or "lanes as usual"
    count = len(value["divisions"])
    others = f"{count} {'matrix' if count == 1 else 'matrices'} otherwise than usual" if count else "rows as usual"
    if near := len(value["near_only"]):
        others += f", {near} of them only at up to 512 tokens of context"
    when = "" if value["origin"] == "measured" else ", at an earlier start"
    return f"matrices divided as measured on this device{when}: {lanes}; {others}"


def tokens(count: int, kind: str = "") -> str:
    """So many tokens, of a kind."""
    return f"{count} {kind}{'token' if count == 1 else 'tokens'}"


def host(report: dict[str, Any]) -> str:
    """The processor and how many of its logical CPUs were to be had."""
    return f"{report['host_cpu']} ({report['host_cpus']} logical CPUs)"


def repeats(report: dict[str, Any]) -> str:
    """How often every setting was run."""
    return "1 repeat" if report["repeats"] == 1 else f"{report['repeats']} interleaved repeats"


def date(report: dict[str, Any]) -> str:
    """The date to the minute; every report is in UTC."""
    return f"{report['date'][:10]} {report['date'][11:16]} UTC"


def clocks(report: dict[str, Any]) -> str:
    """The device's clocks before and after, or that nothing told them."""
    before, after = (_clock(report["device_clocks"][when]) for when in ("before", "after"))
    if not before and not after:
        return "not readable"
    return f"before: {before or 'not readable'}; after: {after or 'not readable'}"


def _clock(reading: dict[str, Any] | None) -> str:
    if reading is None:
        return ""
    parts = (
        ("core_mhz", "core {:.0f} MHz"),
        ("memory_mhz", "memory {:.0f} MHz"),
        ("temperature_c", "{:.0f} °C"),
        ("power_w", "{:.0f} W"),
        ("cpu_mhz", "CPU {:.0f} MHz"),
        ("governor", "governor {}"),
        ("load_1min", "load {:.2f}"),
    )
    return ", ".join(text.format(reading[name]) for name, text in parts if reading.get(name) is not None)
