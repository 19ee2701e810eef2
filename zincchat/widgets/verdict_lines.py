"""What a token waits for, in the engine's own words, wrapped for a panel."""

from __future__ import annotations

import textwrap

from zincchat.panel.judgement import judge
from zincchat.panel.segment import Segment
from zincchat.panel.view import PanelView
from zincchat.widgets.line_view import Line

MIN_WIDTH = 30


def verdict_lines(view: PanelView, segment: Segment, width: int) -> list[Line]:
    """Two lines."""
    found = judge(view, segment)
    if found is None:
        return [[("▶ what a token waits for shows here after three ◇", "dim")], []]
    words = textwrap.wrap(f"▶ {found.line}", max(width, MIN_WIDTH), subsequent_indent="  ")
    return [[(line, "bold magenta")] for line in [*words, ""][:2]]
