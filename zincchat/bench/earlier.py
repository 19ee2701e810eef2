"""Comparing a bench with the ``--json`` of an earlier one, setting by setting."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zincchat.bench.statistics import unpaired_ratio
from zincchat.cli.errors import Failure

_Key = tuple[str, str, str]  # mode, barriers, fusion

_LEAST, _MOST = 1e-9, 1e15  # tok/s, whose ratios are numbers: JSON holds Infinity too, and integers that no float can

# What must be the same for a ratio to tell of zincchat alone, with the words for it.
_CIRCUMSTANCES = {
    "device": "device",
    "driver": "driver",
    "host_cpu": "host CPU",
    "model": "model",
    "quantisation": "quantisation",
    "model_file_bytes": "model size",
    "prefill_tokens": "prefill tokens",
    "decode_tokens": "decode tokens",
    "context": "context",
}


def load_earlier(path: Path) -> dict[str, Any]:
    """The report in ``path``. Failure with one line where it is no ``zincchat bench --json``."""
    try:
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}; --against takes the output of an earlier 'bench --json'") from error
    except (ValueError, RecursionError) as error:
        raise Failure(f"{path} is not JSON; --against takes the output of an earlier 'bench --json'") from error
    if not _is_report(report):
        raise Failure(f"{path} is not a bench's JSON; --against takes the output of an earlier 'bench --json'")
    return report


def _is_report(report: Any) -> bool:
    if not isinstance(report, dict) or not isinstance(report.get("runs"), list) or not report["runs"]:
        return False
    return all(_is_run(run) for run in report["runs"])


def _is_run(run: Any) -> bool:
    """It has what a comparison reads: the setting's names, and its rates as positive numbers."""
    if not isinstance(run, dict) or not all(isinstance(run.get(name), str) for name in ("mode", "barriers")):
        return False
    rates = [*_repeats(run, "decode_tok_s"), _median(run, "decode_tok_s"), _median(run, "prefill_tok_s")]
    return all(isinstance(rate, int | float) and not isinstance(rate, bool) and _LEAST < rate < _MOST for rate in rates)


def compare(report: dict[str, Any], earlier: dict[str, Any], name: str) -> dict[str, Any]:
    """The ``against`` object: what differs between the two, and now over then for each setting in both.

    The intervals are unpaired: the two ran at different times, and what changed on the computer between them is
    in the ratio too.
    """
    versions = earlier.get("versions")
    then = {_key(run): run for run in earlier["runs"]}
    now = {_key(run): run for run in report["runs"]}
    return {
        "file": name,
        "date": earlier.get("date"),
        "version": versions.get("zincchat") if isinstance(versions, dict) else None,
        "differs": [
            *(
                {"what": words, "then": earlier.get(field), "now": report.get(field)}
                for field, words in _CIRCUMSTANCES.items()
                if earlier.get(field) != report.get(field)
            ),
            *_different_passes(then, now),
            *_different_tuning(earlier.get("tuning"), report["tuning"]),
        ],
        "only_then": [" ".join(key) for key in then if key not in now],
        "only_now": [" ".join(key) for key in now if key not in then],
        "runs": [_compare_run(now[key], then[key]) for key in now if key in then],
    }


def _compare_run(now: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    return {
        **{name: now[name] for name in ("mode", "fusion", "fusion_setting", "barriers")},
        "decode_tok_s": {"then": _median(then, "decode_tok_s"), "now": _median(now, "decode_tok_s")},
        "ratio": unpaired_ratio(_repeats(now, "decode_tok_s"), _repeats(then, "decode_tok_s")),
        "prefill_ratio": _median(now, "prefill_tok_s") / _median(then, "prefill_tok_s"),
    }


def _different_passes(then: dict[_Key, dict[str, Any]], now: dict[_Key, dict[str, Any]]) -> list[dict[str, Any]]:
    """``--fusion on`` is what pays on a device with a driver: the same words can mean other passes."""
    both = {key[2]: (then[key].get("passes"), run.get("passes")) for key, run in now.items() if key in then}
    return [
        {"what": f"passes of {fusion}", "then": " ".join(map(str, before)), "now": " ".join(after)}
        for fusion, (before, after) in both.items()
        if isinstance(before, list) and isinstance(after, list) and before != after
    ]


def _different_tuning(then: Any, now: dict[str, Any]) -> list[dict[str, Any]]:
    """What a measurement found may be another division; whether it was made at this start does not matter."""
    if not isinstance(then, dict):
        return []
    then = {"near_only": [], **then}  # an older report has none
    if all(then.get(name) == now[name] for name in ("lanes", "divisions", "near_only")):
        return []
    return [{"what": "division of matrices", "then": _division(then), "now": _division(now)}]


def _division(tuning: dict[str, Any]) -> str:
    parts = (tuning.get("lanes"), tuning.get("divisions"))
    named = [f"{name} {value}" for part in parts if isinstance(part, dict) for name, value in part.items()]
    if isinstance(near_only := tuning["near_only"], list) and near_only:
        named.append(f"at up to 512 tokens of context only: {', '.join(map(str, near_only))}")
    return "; ".join(named) or "as usual"


def _key(run: dict[str, Any]) -> _Key:
    fusion = run.get("fusion_setting") or ("on" if run.get("fusion", True) else "off")
    return run["mode"], f"barriers={run['barriers']}", f"fusion={fusion}"


def _median(run: dict[str, Any], field: str) -> Any:
    value = run.get(field)
    return value.get("median") if isinstance(value, dict) else None


def _repeats(run: dict[str, Any], field: str) -> list[Any]:
    """A rate of every repeat; the median alone where a report lacks them."""
    values = run.get(f"{field}_repeats")
    return values if isinstance(values, list) and values else [_median(run, field)]
