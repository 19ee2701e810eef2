"""The article's token beside measured ones."""

from __future__ import annotations

import pytest

from engine.profile.article import (
    ARTICLE_MS,
    ARTICLE_TOKEN_MS,
    REMEDIES,
    RunMedians,
    RunSettings,
    piece_rows,
    remedy_rows,
)
from engine.profile.bubble_report import starved_us, unexplained_us
from engine.profile.native_record import native_record_us

PIECES = {"weights": 400.0, "kv": 20.0, "small": 60.0, "head": 20.0}
RUN = RunMedians(1000.0, 300.0, 150.0, 10.0, PIECES)


def test_the_model_is_the_articles():
    assert pytest.approx(25.2) == ARTICLE_TOKEN_MS
    assert pytest.approx(REMEDIES[0][2], abs=0.1) == 1000 / ARTICLE_TOKEN_MS


def test_pieces_are_measured_and_the_rest_has_its_own_row():
    rows = {row.name: row for row in piece_rows(RUN)}
    measured = {name: row.measured_ms for name, row in rows.items()}
    assert measured == pytest.approx({
        "weight streaming": 0.4, "KV": 0.02, "small kernels": 0.06, "dispatch + barriers": 0.45,
        "LM head + sampling": 0.02, "submission edges": 0.01, "unexplained": 0.04,
    })  # fmt: skip
    assert sum(row.measured_share for row in rows.values()) == pytest.approx(1)
    assert sum(row.article_share for row in rows.values() if row.article_share) == pytest.approx(1)
    assert [name for name, row in rows.items() if row.article_ms is None] == ["submission edges", "unexplained"]


@pytest.mark.parametrize("run", [None, RunMedians(1000.0, 300.0)])
def test_what_was_not_measured_is_none(run):
    rows = piece_rows(run)
    assert [row.article_ms for row in rows[:5]] == list(ARTICLE_MS.values())
    assert all(row.measured_ms is row.measured_share is None for row in rows)


def test_remedies_come_from_runs_alone():
    runs = {
        RunSettings("rerecord", "every", False): RunMedians(4000.0, 1.0),
        RunSettings("reuse", "every", True): RunMedians(1000.0, 1.0),
        RunSettings("reuse", "needed", True): RunMedians(800.0, 1.0),
        RunSettings("overlap", "needed", True): RunMedians(10.0, 1.0),
    }
    rows = remedy_rows(runs)
    assert [row.measured_tok_s for row in rows] == [250, None, 1000, 1250, None, None]
    assert [row.gain for row in rows] == [None, None, None, 1.25, None, None]
    assert [row.article_tok_s for row in rows] == [39.6, 45.0, 50.8, None, None, None]


def test_small_definitions():
    assert native_record_us(480) == pytest.approx(96)
    assert (starved_us(20.0, 13.0), starved_us(5.0, 13.0)) == (7.0, 0.0)
    assert unexplained_us(100.0, 10.0, 60.0, 20.0, 5.0) == 5.0
    assert unexplained_us(100.0, 10.0, 70.0, 30.0, 5.0) == -15.0  # signed: the terms may exceed the period
