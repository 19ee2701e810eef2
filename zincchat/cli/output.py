"""How results are shown: JSON on stdout, aligned tables, and the figures that several commands state."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from zincchat.cli.errors import printable

if TYPE_CHECKING:
    from engine import DeviceInfo, TokenTiming

# What a terminal would act on instead of showing: all C0 and C1 controls but tab and newline.
_CONTROLS = {code: None for code in (*range(0x20), *range(0x7F, 0xA0)) if code not in (0x09, 0x0A)}

_PIECE_BYTES = 4096  # PIPE_BUF


def print_json(value: Any) -> None:
    """One JSON document on stdout, in ASCII whatever the locale."""
    text = json.dumps(value, indent=2, allow_nan=False)
    text += "\n"
    # Under PYTHONUNBUFFERED a partial write is not resumed: pieces that a pipe takes whole lose nothing.
    for start in range(0, len(text), _PIECE_BYTES):
        sys.stdout.write(text[start : start + _PIECE_BYTES])


def _encodable(text: str, stream: TextIO) -> str:
    """``text`` with question marks for what the stream's locale cannot write."""
    encoding = stream.encoding or "ascii"
    if encoding.lower().replace("-", "").startswith("utf"):
        return text
    return text.encode(encoding, errors="replace").decode(encoding)


def write_text(text: str) -> None:
    """Show a piece of a reply at once; a terminal is spared control characters, a pipe gets all."""
    if sys.stdout.isatty():
        text = text.translate(_CONTROLS)
    sys.stdout.write(_encodable(text, sys.stdout))
    sys.stdout.flush()


def write_dimmed(text: str) -> None:
    """Show a piece of text beside the result: dimmed, on stderr, which is a terminal."""
    text = _encodable(text.translate(_CONTROLS), sys.stderr)
    sys.stderr.write(click.style(text, dim=True) if text.strip() else text)
    sys.stderr.flush()


def table(header: Sequence[str], rows: Sequence[Sequence[str]], numeric: Sequence[int] = ()) -> str:
    """Columns two spaces apart; those in ``numeric`` are aligned right. Cells may be what a file says."""
    lines = [list(header), *[[printable(cell) for cell in row] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numeric else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def columns(most: int) -> int:
    """How wide a table may be: what the terminal on stdout has, at most ``most``; ``most`` where there is none."""
    return min(shutil.get_terminal_size((most, 24)).columns, most) if sys.stdout.isatty() else most


def device_text(device: DeviceInfo) -> str:
    """The device's name; a software one is called so, because its "GPU" is this computer's CPU."""
    return f"{device.name} (software: runs on the CPU)" if device.is_software else device.name


def decode_rate(timings: Sequence[TokenTiming]) -> float | None:
    """Tokens per second over the clean tokens after the first, from the wall clock; None without any.

    Token 0 comes from the prefill's logits, and a stamped token runs slower kernels.
    """
    periods_us = [timing.period_us for timing in timings if timing.index > 0 and timing.measured_by == "clean"]
    total_us = sum(periods_us)
    return len(periods_us) / total_us * 1e6 if total_us > 0 else None


def rate_text(tokens_per_second: float | None) -> str:
    """A rate with a sensible number of digits."""
    if tokens_per_second is None:
        return "-"
    return f"{tokens_per_second:,.0f}" if tokens_per_second >= 100 else f"{tokens_per_second:.1f}"


def bytes_text(count: int) -> str:
    """A size in decimal units."""
    if count < 1e6:
        return f"{count / 1e3:.0f} kB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
