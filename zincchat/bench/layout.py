"""Text and tables in lines of a given width."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from zincchat.cli.output import table


def wrapped(lines: Sequence[str], width: int) -> list[str]:
    """The lines, each cut where it is too long, between words; what follows is indented."""
    return [
        part for line in lines for part in textwrap.wrap(line, width, subsequent_indent="  ", break_on_hyphens=False)
    ]


def fitted(header: Sequence[str], rows: Sequence[Sequence[str]], labels: int, width: int) -> list[str]:
    """The table; where it is too wide, in parts below each other that all begin with the first ``labels`` columns."""
    widths = [max(len(row[column]) for row in (header, *rows)) + 2 for column in range(len(header))]
    parts: list[list[int]] = [[]]
    for column in range(labels, len(header)):
        if parts[-1] and sum(widths[:labels]) + sum(widths[each] for each in (*parts[-1], column)) - 2 > width:
            parts.append([])
        parts[-1].append(column)
    lines: list[str] = []
    for part in parts:
        shown = [*range(labels), *part]
        cut = [[row[column] for column in shown] for row in (header, *rows)]
        lines += table(cut[0], cut[1:], numeric=range(labels, len(shown))).splitlines()
    return lines
