"""The JSON object of one bench: what was measured, and everything needed to judge or repeat it."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zincchat.bench import host
from zincchat.bench.figures import run_figures
from zincchat.bench.instruments import Instruments
from zincchat.bench.kernels import kernels
from zincchat.bench.measure import Measurements, Workload
from zincchat.bench.remedies import remedies
from zincchat.bench.setting import Setting
from zincchat.bench.statistics import coverage, spread
from zincchat.catalogue import CATALOGUE
from zincchat.provenance import provenance

if TYPE_CHECKING:
    from engine import Engine


def bench_report(
    engine: Engine,
    command: str,
    settings: Sequence[Setting],
    workload: Workload,
    measurements: Measurements,
    instruments: Instruments,
    clocks: tuple[Any, Any],
) -> dict[str, Any]:
    """Everything, settings in the order given; ``clocks`` are the device's before and after."""
    samples = measurements.samples
    prefill = spread(measurements.prefill_tok_s)
    runs = [
        {**run_figures(setting, samples[setting], samples[settings[0]], instruments), "prefill_tok_s": prefill}
        for setting in settings
    ]
    return {
        **provenance(engine, command),
        **_model_file(engine),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "host_cpu": host.host_cpu(),
        "host_cpus": host.host_cpus(),
        "device_clocks": {"before": clocks[0], "after": clocks[1]},
        "probe_gb_s": instruments.floor.probe_gb_s,
        "queued_gap_us": instruments.queued_gap_us,
        "submit_hint": instruments.submit_hint,
        "not_measured": instruments.problems,
        "tuning": _tuning(engine),
        "context": engine.context,
        "prefill_tokens": workload.prefill_tokens,
        "decode_tokens": workload.decode_tokens,
        "repeats": workload.repeats,
        "interval_coverage_at_most": coverage(workload.repeats),
        "host_rss_bytes": host.host_rss_bytes(),
        "device_bytes": engine.device_bytes,
        "weight_bytes": engine.weight_bytes,
        "prefill_tok_s_repeats": measurements.prefill_tok_s,
        "kernels": kernels(samples, instruments.floor.probe_gb_s),
        "remedies": remedies(runs),
        "runs": runs,
    }


def _tuning(engine: Engine) -> dict[str, Any]:
    """How rows are divided, with what is otherwise than usual."""
    used = engine.tuning
    divisions = {name: divided._asdict() for name, divided in used.divisions.items()}
    return {
        "origin": used.origin,
        "lanes": dict(used.lanes),
        "divisions": divisions,
        "near_only": list(used.near_only),
    }


def _model_file(engine: Engine) -> dict[str, Any]:
    """Size, and the sha256 where the file is the catalogue's (whose hash was checked on arrival)."""
    path = engine.model.path
    known = [model.sha256 for model in CATALOGUE.values() if model.path == path and model.is_present]
    return {"model_file_bytes": engine.model.file_bytes, "model_sha256": known[0] if known else None}
