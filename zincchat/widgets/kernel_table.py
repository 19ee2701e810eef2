"""A row a kind of kernel: its time, and how much of the memory's bandwidth it reaches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine import loads_ahead
from zincchat.panel.units import bandwidth, rate
from zincchat.widgets.line_view import Line, LineView

if TYPE_CHECKING:
    from engine import KernelRate
    from zincchat.panel.segment import Settings

DASH = "–"
NAME_WIDTH = 26
KINDS = 16  # rows; an unfused program has more


class KernelTable(LineView):
    """Always the same number of lines: the kinds that take most of a token, in the program's order."""

    def lines(self) -> list[Line]:
        """Title, header, the kinds, what all others take, and what the figures are."""
        history, device = self.view.kernels, self.view.device
        settings = history.settings
        probe_gb_s = device.probe_gb_s if device else None
        header: Line = [(_columns("kernel", "n", "us", "GB/s", "probe"), "dim")]
        if settings is None:
            bounds = any(token.timing.bubbles_range_us for token in self.view.history.tokens)
            absent = "they have no clock here" if bounds else "with the next stamped token, or by /measure"
            title, rates = f"kernels ◇: {absent}", []
        else:
            title, rates = f"kernels ◇ {' · '.join(settings.words())}", history.rates(probe_gb_s)
        by_time = sorted(rates, key=lambda kind: kind.count * kind.time_us, reverse=True)
        shown, others = by_time[:KINDS], by_time[KINDS:]
        rows: list[Line] = [
            [(_row(kind), "bold" if kind.piece in ("weights", "head") else "")] for kind in rates if kind in shown
        ]
        rest_us = sum(kind.count * kind.time_us for kind in others)
        rest = f"{len(others)} more kinds: {rest_us:,.0f} us a token" if others else ""
        return [
            [(title, "bold")],
            header,
            *rows,
            *[[] for _ in range(KINDS - len(rows))],
            [(rest, "dim")],
            [("us of one, n of it a token: medians of " + _tokens(history.tokens), "dim")],
            [(_about_rates(settings, probe_gb_s), "dim")],
        ]


def _about_rates(settings: Settings | None, probe_gb_s: float | None) -> str:
    if settings is not None and loads_ahead(settings.mode, settings.barriers):
        return "weights are on their way before: GB/s reads too high"
    return "probe: share of the bandwidth measured here" + (f", {rate(probe_gb_s)} GB/s" if probe_gb_s else "")


def _tokens(count: int) -> str:
    return "1 stamped token" if count == 1 else f"{count or ''} stamped tokens".lstrip()


def _row(kind: KernelRate) -> str:
    name = f"{kind.name} {kind.weight_type}".rstrip()
    if len(name) >= NAME_WIDTH:
        room = NAME_WIDTH - 2 - len(kind.weight_type) - bool(kind.weight_type)
        name = f"{kind.name[:room]}… {kind.weight_type}".rstrip()
    reached = bandwidth(kind.gb_s) if kind.gb_s is not None else DASH
    share = f"{kind.probe_fraction:.0%}" if kind.probe_fraction is not None else DASH
    return _columns(name, f"{kind.count:g}", f"{kind.time_us:,.1f}", reached, share)


def _columns(name: str, count: str, time_us: str, reached: str, share: str) -> str:
    return f"{name:<{NAME_WIDTH}}{count:>4}{time_us:>10}{reached:>8}{share:>7}"
