"""From a setting's passes to the entry of ``runs`` that describes it. Docs: docs/bench.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from engine import TokenTiming, native_record_us, starved_us, verdict
from zincchat.bench.instruments import Floor, Instruments
from zincchat.bench.measure import Samples, StampedPass
from zincchat.bench.setting import Setting
from zincchat.bench.statistics import median, paired_ratio, spread
from zincchat.bench.unexplained import edges_us, unexplained

CPU_STEPS = ("build", "record", "patch", "submit", "wait", "readback")
CPU_FIELDS = (*(f"{step}_us" for step in CPU_STEPS), *(f"{step}_wall_us" for step in CPU_STEPS))
CLEAN_FIELDS = (*CPU_FIELDS, "exposed_cpu_us", "gpu_total_us", "gpu_idle_before_us")
STAMPED_FIELDS = ("kernels_us", "bubbles_us")


def run_figures(setting: Setting, samples: Samples, base: Samples, instruments: Instruments) -> dict[str, Any]:
    """One entry of the JSON's ``runs``: microseconds are medians over tokens, None where not measured.

    ``base`` are the samples of the setting that ratios refer to.
    """
    clean = [token for each in samples.clean for token in each.tokens]
    stamped = [token for each in samples.stamped for token in each.stamped]
    rates = [each.tok_s for each in samples.clean]
    dispatches = _whole(median([token.dispatches for token in clean]))
    report = instruments.bubbles_of(setting)
    figures = {
        **setting.to_json(),
        "passes": list(clean[0].passes) if clean else [],
        "dispatches": dispatches,
        "barrier_count": _whole(median([token.barrier_count for token in clean])),
        "decode_tok_s": spread(rates),
        "decode_tok_s_repeats": rates,
        "ratio_to_first": paired_ratio(rates, [each.tok_s for each in base.clean]),
        "period_us": spread([token.period_us for token in clean]),
        **{name: median([getattr(token, name) for token in clean]) for name in CLEAN_FIELDS},
        "patch_submit_us": median([token.patch_us + token.submit_us for token in clean]),
        "starved_us": _starved_us(clean, instruments.queued_gap_us),
        **{name: median([getattr(token, name) for token in stamped]) for name in STAMPED_FIELDS},
        "edges_us": median([edges_us(token) for token in stamped]),
        "stamps_us": None if report is None else report.stamps_us,
        "pieces_us": _median_pieces(stamped),
        "bubbles_range_us": _bubbles_range(setting, stamped, instruments),
        **_brackets(setting, instruments),
        "stamped_tokens": len(stamped),
        "stamp_cost_fraction": median([_stamp_cost(each) for each in samples.stamped]),
        **_floor_figures(rates, instruments.floor),
        "recordings": _whole(median([each.recordings for each in samples.clean])),
        **_record_costs(clean),
        "native_record_us": native_record_us(dispatches or 0),
    }
    return {**figures, **unexplained(samples, report), "verdict": _verdict(figures, instruments.floor)}


def _verdict(figures: dict[str, Any], floor: Floor) -> dict[str, str] | None:
    """The engine's one line on what the token waits for; None where its terms were not measured."""
    stamped = figures["bubbles_us"] is not None and figures["kernels_us"] is not None
    bounds = figures["bubbles_range_us"]
    if figures["starved_us"] is None or figures["gpu_total_us"] is None or not (stamped or bounds):
        return None
    judged = verdict(
        period_us=figures["period_us"]["median"],
        starved_us=figures["starved_us"],
        gpu_total_us=figures["gpu_total_us"],
        kernels_us=figures["kernels_us"] if stamped else None,
        bubbles_us=figures["bubbles_us"] if stamped else _ordered(bounds, figures["gpu_total_us"]),
        token_bytes=floor.token_bytes,
        probe_gb_s=floor.probe_gb_s,
        mode=figures["mode"],
        barriers=figures["barriers"],
    )
    return {"kind": judged.kind, "line": judged.line}


def _ordered(bounds: Sequence[float | None], gpu_total_us: float) -> tuple[float, float]:
    """Both bounds; bubbles of which no upper one is known are at most all of the GPU's time."""
    known = [gpu_total_us if bound is None else bound for bound in bounds]
    return min(known), max(known)


def _record_costs(clean: Sequence[TokenTiming]) -> dict[str, float | None]:
    """Of tokens whose command buffer was recorded for them alone; a recording made for many tells nothing here."""
    recorded = [token for token in clean if token.rerecorded]
    return {
        "record_us_per_dispatch": median([token.record_us / token.dispatches for token in recorded]),
        "build_us_per_op": median([token.build_us / token.dispatches for token in recorded]),
    }


def _starved_us(clean: Sequence[TokenTiming], queued_gap_us: float | None) -> float | None:
    """What the GPU stood idle beyond the gap that two queued submissions leave anyway."""
    if queued_gap_us is None:
        return None
    idle = [token.gpu_idle_before_us for token in clean if token.gpu_idle_before_us is not None]
    return median([starved_us(value, queued_gap_us) for value in idle])


def _stamp_cost(stamped_pass: StampedPass) -> float | None:
    """GPU time of stamped tokens over that of the clean ones between them, less one.

    Neighbours are milliseconds apart: nothing drifts between them. None where no kernel was stamped.
    """
    stamped = _median_of(stamped_pass.stamped, lambda token: token.gpu_total_us if token.kernels_us else None)
    between = _median_of(stamped_pass.between, lambda token: token.gpu_total_us)
    return stamped / between - 1 if stamped and between else None


def _floor_figures(rates: Sequence[float], floor: Floor) -> dict[str, float | None]:
    rate, floor_tok_s = spread(rates)["median"], floor.tok_s
    return {
        "token_bytes": floor.token_bytes,
        "decode_gb_s": floor.token_bytes * rate / 1e9,
        "floor_tok_s": floor_tok_s,
        "floor_fraction": rate / floor_tok_s if floor_tok_s else None,
    }


def _bubbles_range(
    setting: Setting, stamped: Sequence[TokenTiming], instruments: Instruments
) -> list[float | None] | None:
    """The brackets: measured for the setting where the engine offers that, else as the tokens carried them."""
    report = instruments.bubbles_of(setting)
    if report is not None:
        return [report.lower_us, report.upper_us]
    ranges = [token.bubbles_range_us for token in stamped if token.bubbles_range_us is not None]
    return [median([pair[end] for pair in ranges]) for end in (0, 1)] if ranges else None


def _brackets(setting: Setting, instruments: Instruments) -> dict[str, Any]:
    """The bubble meter's whole report, whose stamped and other programs ran in turn."""
    report = instruments.bubbles_of(setting)
    return {
        "bubbles_within_range": None if report is None else report.within_brackets,
        "bubble_report": None if report is None else report.to_json(),
    }


def _median_pieces(stamped: Sequence[TokenTiming]) -> dict[str, float | None] | None:
    pieces = [token.pieces_us for token in stamped if token.pieces_us is not None]
    return {name: median([piece[name] for piece in pieces]) for name in pieces[0]} if pieces else None


def _median_of(tokens: Iterable[TokenTiming], value: Callable[[TokenTiming], float | None]) -> float | None:
    return median([value(token) for token in tokens])


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)
