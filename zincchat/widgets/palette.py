"""The colour of each letter, the same wherever a bar is drawn."""

from __future__ import annotations

from itertools import groupby

from zincchat.widgets.line_view import Line

COLOURS = {
    "R": "black on #e5484d",
    "S": "black on #f5a524",
    "W": "white on #5c5f66",
    "G": "black on #3e9b6e",
    "K": "black on #30c48d",
    "B": "white on #8e4ec6",
    "I": "black on #6ea8fe",
}


def coloured(cells: str) -> Line:
    """A bar's letters in their colours; dots, ticks and blanks stay plain."""
    return [("".join(run), COLOURS.get(letter, "dim")) for letter, run in groupby(cells)]
