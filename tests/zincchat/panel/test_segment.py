"""What changed between two settings, in words that fit."""

from __future__ import annotations

from itertools import product

import pytest

from engine import BARRIERS, MODES
from zincchat.panel.segment import Settings

PANEL_COLUMNS = 54
ALL = [Settings(*switches) for switches in product(MODES, (False, True), BARRIERS)]


@pytest.mark.parametrize("before", ALL)
def test_every_change_fits_the_panel_behind_its_title(before: Settings) -> None:
    texts = [before.change_to(after) for after in ALL if after != before]
    assert max(len(f"A/B {text}") for text in texts) <= PANEL_COLUMNS
    assert len(set(texts)) == len(texts)


def test_a_long_change_names_only_what_differs() -> None:
    a, b = Settings("pipelined", True, "needed"), Settings("persistent", False, "every")
    assert a.change_to(b) == "pipelined·fused·needed → persistent·unfused·every"
    assert a.change_to(Settings("persistent", True, "every")) == "pipelined → persistent · barriers needed → every"
    assert a.change_to(Settings("reuse", True, "needed")) == "pipelined → reuse"
