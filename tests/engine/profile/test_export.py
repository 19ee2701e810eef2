"""Token records as a user's spreadsheet or script reads them back."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import fields, replace

import pytest

from engine import EngineError, TokenTiming, export_suffix, export_text
from engine.program.op import PIECES
from tests.zincchat.cli.fake_engine import timing

CLEAN = timing(0, "reuse", True, "needed")
STAMPED = timing(1, "rerecord", False, "every", stamped=True)
BRACKETED = replace(CLEAN, index=2, measured_by="twin", bubbles_range_us=(10.0, 20.5), passes=("qkv", "gate_up"))
RECORDS = (CLEAN, STAMPED, BRACKETED)
PARTS = {"pieces_us": PIECES, "bubbles_range_us": ("lower", "upper")}


def test_a_json_line_is_the_record() -> None:
    lines = export_text(RECORDS, ".jsonl").splitlines()
    assert [list(json.loads(line)) for line in lines] == [[field.name for field in fields(TokenTiming)]] * 3
    assert json.loads(lines[1]) == json.loads(json.dumps(STAMPED.to_json()))


def test_csv_has_a_column_a_figure() -> None:
    rows = list(csv.DictReader(io.StringIO(export_text(RECORDS, ".csv"))))
    expected = [f"{f.name}.{part}" for f in fields(TokenTiming) for part in PARTS.get(f.name, ())]
    expected += [f.name for f in fields(TokenTiming) if f.name not in PARTS]
    assert sorted(rows[0]) == sorted(expected)
    assert [row["index"] for row in rows] == ["0", "1", "2"]
    assert float(rows[1]["pieces_us.weights"]) == 5_000
    assert rows[0]["pieces_us.weights"] == rows[0]["kernels_us"] == rows[1]["bubbles_range_us.lower"] == ""
    assert (rows[2]["bubbles_range_us.lower"], rows[2]["bubbles_range_us.upper"]) == ("10.0", "20.5")
    assert (rows[0]["fusion"], rows[1]["fusion"], rows[1]["rerecorded"]) == ("true", "false", "true")
    assert rows[2]["passes"] == "qkv+gate_up"


def test_no_cell_holds_a_container() -> None:
    for row in csv.DictReader(io.StringIO(export_text(RECORDS, ".csv"))):
        assert not any(mark in cell for cell in row.values() for mark in "([{")


def test_without_a_token_csv_still_has_its_header() -> None:
    assert export_text((), ".csv").startswith("index,mode,")
    assert export_text((), ".jsonl") == ""


def test_the_name_decides_the_format() -> None:
    assert (export_suffix("a/b.JSONL"), export_suffix("b.csv")) == (".jsonl", ".csv")
    for name in ("tokens", "tokens.json", "csv"):
        with pytest.raises(EngineError, match=r"\.jsonl or \.csv"):
            export_suffix(name)
