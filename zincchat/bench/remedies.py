"""The article's remedies, each on top of those before it, with what the runs of this bench gave under them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from engine import RunMedians, RunSettings, remedy_rows


def remedies(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row a remedy: ``name, settings, article_tok_s, measured_tok_s, gain``; None where its setting was not run.

    ``measured_tok_s`` is one over the median period, ``gain`` the ratio to the row above.
    """
    found = {
        RunSettings(run["mode"], run["barriers"], run["fusion"]): RunMedians(
            run["period_us"]["median"], run["gpu_idle_before_us"] or 0.0
        )
        for run in runs
        if run["fusion_setting"] in ("on", "off")
    }
    return [{**asdict(row), "settings": row.settings._asdict()} for row in remedy_rows(found)]
