"""The article's modelled token beside this device's measured ones, piece by piece and remedy by remedy.

The model is of Qwen3.5-9B on an RX 9070 XT under RADV: a 25.2 ms token, 39.6 tok/s today, 45.0 with the recording
reused, 50.8 with fused kernels too. Nothing here is projected: a remedy nobody has run has no measured figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from engine.profile.bubble_report import unexplained_us

RECORD_MS, BARRIERS_MS = 3.0, 4.0  # the two halves of what the article calls overhead
ARTICLE_MS: Mapping[str, float] = {
    "weight streaming": 10.7,
    "KV": 0.6,
    "small kernels": 5.4,
    "dispatch + barriers": RECORD_MS + BARRIERS_MS,
    "LM head + sampling": 1.5,
}
ARTICLE_TOKEN_MS = sum(ARTICLE_MS.values())
_KERNEL_PIECES = {"weights": "weight streaming", "kv": "KV", "small": "small kernels", "head": "LM head + sampling"}
_LOST = "dispatch + barriers"


class RunSettings(NamedTuple):
    """What a run was measured under."""

    mode: str
    barriers: str
    fusion: bool


# (name, settings, the article's tok/s): each remedy on top of those before it
REMEDIES: tuple[tuple[str, RunSettings, float | None], ...] = (
    ("today", RunSettings("rerecord", "every", False), 39.6),
    ("reuse", RunSettings("reuse", "every", False), 45.0),
    ("reuse + fusion", RunSettings("reuse", "every", True), 50.8),
    ("+ needed barriers", RunSettings("reuse", "needed", True), None),
    ("pipelined", RunSettings("pipelined", "needed", True), None),
    ("waits in memory", RunSettings("pipelined", "flags", True), None),
)


@dataclass(frozen=True, slots=True)
class RunMedians:
    """Medians of one run, us: the first two of its clean tokens, the others of its stamped ones or None."""

    period_us: float
    gpu_idle_before_us: float
    bubbles_us: float | None = None
    edges_us: float | None = None
    pieces_us: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class PieceRow:
    """A piece's time and share (0 to 1) of the token, as the article models it and as it was measured, or None."""

    name: str
    article_ms: float | None
    article_share: float | None
    measured_ms: float | None
    measured_share: float | None


@dataclass(frozen=True, slots=True)
class RemedyRow:
    """Tokens a second with a remedy and those before it applied; ``gain`` is the ratio to the row above."""

    name: str
    settings: RunSettings
    article_tok_s: float | None
    measured_tok_s: float | None
    gain: float | None


def piece_rows(run: RunMedians | None) -> list[PieceRow]:
    """The five pieces, then what lies between timestamps and kernels, then what no measurement accounts for.

    "dispatch + barriers" is what the GPU lost, whoever caused it: ``gpu_idle_before_us`` and the bubbles. Without
    stamped tokens only the period is known, and every row is None.
    """
    measured: dict[str, float] = {}
    if run is not None and run.pieces_us is not None and run.bubbles_us is not None and run.edges_us is not None:
        measured = {_KERNEL_PIECES[piece]: us for piece, us in run.pieces_us.items()}
        measured[_LOST] = run.gpu_idle_before_us + run.bubbles_us
        measured["submission edges"] = run.edges_us
        kernels_us = sum(run.pieces_us.values())
        measured["unexplained"] = unexplained_us(
            run.period_us, run.gpu_idle_before_us, kernels_us, run.bubbles_us, run.edges_us
        )
    rows = []
    for name in (*ARTICLE_MS, "submission edges", "unexplained"):
        model_ms, us = ARTICLE_MS.get(name), measured.get(name)
        rows.append(
            PieceRow(
                name,
                model_ms,
                None if model_ms is None else model_ms / ARTICLE_TOKEN_MS,
                None if us is None else us / 1e3,
                None if us is None or run is None else us / run.period_us,
            )
        )
    return rows


def remedy_rows(runs: Mapping[RunSettings, RunMedians]) -> list[RemedyRow]:
    """Each remedy in turn, from the runs that were measured; None for the others."""
    rows: list[RemedyRow] = []
    for name, settings, article_tok_s in REMEDIES:
        run = runs.get(settings)
        tok_s = None if run is None else 1e6 / run.period_us
        above = rows[-1].measured_tok_s if rows else None
        gain = tok_s / above if tok_s is not None and above is not None else None
        rows.append(RemedyRow(name, settings, article_tok_s, tok_s, gain))
    return rows
