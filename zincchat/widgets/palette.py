"""The colour of each letter, the same wherever a bar is drawn."""

from __future__ import annotations

from rich.text import Text

COLOURS = {
    "R": "black on #e5484d",
    "S": "black on #f5a524",
    "W": "white on #5c5f66",
    "G": "black on #3e9b6e",
    "K": "black on #30c48d",
    "B": "white on #8e4ec6",
}


def coloured(cells: str) -> Text:
    """A bar's letters in their colours; dots, ticks and blanks stay plain."""
    text = Text(no_wrap=True)
    start = 0
    for end in range(1, len(cells) + 1):
        if end == len(cells) or cells[end] != cells[start]:
            text.append(cells[start:end], COLOURS.get(cells[start], "dim"))
            start = end
    return text
