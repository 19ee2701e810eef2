"""Token records as JSON lines or CSV, under TokenTiming's own names."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from engine.errors import EngineError
from engine.profile.records import TokenTiming
from engine.program.op import PIECES

EXPORT_SUFFIXES = (".jsonl", ".csv")
_PARTS = {"pieces_us": PIECES, "bubbles_range_us": ("lower", "upper")}  # a CSV column each: pieces_us.weights
_SEPARATOR = "+"  # between the names of a list


def export_suffix(name: str) -> str:
    """The suffix of a file to export to; EngineError unless it is one of EXPORT_SUFFIXES."""
    for suffix in EXPORT_SUFFIXES:
        if name.lower().endswith(suffix):
            return suffix
    raise EngineError(f"cannot export to {name}: its name must end in {' or '.join(EXPORT_SUFFIXES)}")


def export_text(timings: Sequence[TokenTiming], suffix: str) -> str:
    """The records as text: an object a line for ".jsonl", a header and a row each for ".csv"."""
    return _json_lines(timings) if suffix == ".jsonl" else _csv(timings)


def _json_lines(timings: Sequence[TokenTiming]) -> str:
    return "".join(json.dumps(timing.to_json(), allow_nan=False) + "\n" for timing in timings)


def _csv(timings: Sequence[TokenTiming]) -> str:
    text = io.StringIO()
    names = [column for field in fields(TokenTiming) for column in _columns(field.name)]
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for timing in timings:
        row: dict[str, Any] = {}
        for field in fields(TokenTiming):
            row |= _cells(field.name, getattr(timing, field.name))
        writer.writerow(row)
    return text.getvalue()


def _columns(name: str) -> list[str]:
    return [f"{name}.{part}" for part in _PARTS[name]] if name in _PARTS else [name]


def _cells(name: str, value: Any) -> dict[str, Any]:
    """What was not measured is an empty cell; true and false are as in JSON."""
    if name in _PARTS:
        parts = _PARTS[name]
        values = value if isinstance(value, dict) else dict(zip(parts, value or (None,) * len(parts), strict=True))
        return {f"{name}.{part}": values[part] for part in parts}
    if isinstance(value, bool):
        return {name: str(value).lower()}
    return {name: _SEPARATOR.join(value) if isinstance(value, tuple) else value}
