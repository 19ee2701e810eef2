"""The article's modelled token beside this device's measured one, each remedy's rate, and the bubble meter's report."""

from __future__ import annotations

from itertools import pairwise

from engine import BubbleReport, PieceRow, RemedyRow, RunSettings, piece_rows, remedy_rows
from zincchat.panel.runs import STAMPED_TOKENS_NEEDED
from zincchat.panel.segment import Segment, Settings
from zincchat.panel.units import ms, rate
from zincchat.widgets.line_view import Line, LineView
from zincchat.widgets.verdict_lines import verdict_lines

DASH = "–"
NAME_WIDTH = 20


class Article(LineView):
    """Always the same number of lines; what has not been measured is a dash.

    ``alone``: there are no figures beside it, so it says itself what a token waits for.
    """

    alone = True

    def lines(self) -> list[Line]:
        """A row a piece, a row a remedy, the bubbles between their bounds."""
        settings, runs = self.view.settings, self.view.history.runs.medians()
        in_use = RunSettings(settings.mode, settings.barriers, settings.fusion) if settings else None
        now = runs.get(in_use) if in_use else None
        pieces = piece_rows(now)
        stamped = self.view.history.runs.stamped_tokens(in_use) if in_use and now and now.pieces_us else 0
        count = f"◇ {stamped}" if stamped else ""
        modelled_ms = sum(row.article_ms or 0 for row in pieces)
        return [
            *(verdict_lines(self.view, self._judged(), self.content_size.width) if self.alone else [[], []]),
            [(f"{'ms':<{NAME_WIDTH}}{'article':>8}{'':6}{'this device':>13}{count:>7}", "dim")],
            *(_piece(row) for row in pieces),
            _columns("token", f"{modelled_ms:.1f}", "", ms(now.period_us) if now else DASH, "", "bold"),
            [(f"{'tok/s':<{NAME_WIDTH}}{'article':>8}{'':6}{'this device':>13}", "dim")],
            *self._remedies(remedy_rows(runs)),
            *bubble_lines(self.view.bubbles),
            [("article: modelled for Qwen3.5-9B on an RX 9070 XT", "dim")],
        ]

    def _remedies(self, rows: list[RemedyRow]) -> list[Line]:
        """A gain only over a row of like context: else it would be the context's, too."""
        lines = [_remedy(row, "") for row in rows[:1]]
        for above, row in pairwise(rows):
            comparable = self.view.history.runs.comparable(above.settings, row.settings)
            unknown = DASH if row.gain is not None else ""
            lines.append(_remedy(row, f"×{row.gain:.2f}" if row.gain is not None and comparable else unknown))
        return lines

    def _judged(self) -> Segment:
        """The chat's tokens since a setting changed; those of a measurement where too few of them are stamped."""
        current, measured = self.view.history.current, self.view.measured
        enough = current is not None and len(current.bubbles_us) >= STAMPED_TOKENS_NEEDED
        if not enough and measured is not None and measured.settings == self.view.settings:
            return measured
        return current or Segment(Settings("", True, ""))


def _columns(name: str, article: str, share: str, measured: str, measured_share: str, style: str = "") -> Line:
    return [(f"{name:<{NAME_WIDTH}}{article:>8}{share:>6}{measured:>13}{measured_share:>7}", style)]


def _piece(row: PieceRow) -> Line:
    return _columns(
        row.name,
        f"{row.article_ms:.1f}" if row.article_ms is not None else "",
        _percent(row.article_share),
        ms(row.measured_ms * 1000) if row.measured_ms is not None else DASH,
        _percent(row.measured_share),
    )


def _remedy(row: RemedyRow, gain: str) -> Line:
    return _columns(
        row.name,
        rate(row.article_tok_s) if row.article_tok_s is not None else "",
        "",
        rate(row.measured_tok_s) if row.measured_tok_s is not None else DASH,
        gain,
    )


def _percent(share: float | None) -> str:
    return f"{round(100 * share)}%" if share is not None else ""


def bubble_lines(report: BubbleReport | None) -> list[Line]:
    """Three lines."""
    if report is None:
        return [
            [("/measure fills this table: the parts of a token, each", "dim")],
            [("remedy for 24 tokens, and bounds for the bubbles; Esc", "dim")],
            [("stops it, the chat goes on as before", "dim")],
        ]
    title = f"bubbles ◇ at token {report.position:,}, {'fused' if report.passes else 'unfused'}, {report.barriers}"
    low = f"{ms(report.lower_us)}±{ms(report.lower_error_us)}"
    high = f"{ms(report.upper_us)}±{ms(report.upper_error_us or 0.0)}" if report.upper_us is not None else ""
    if report.bubbles_us is None or report.bubbles_error_us is None:
        between = f"  between {low} and {high} ms" if high else f"  at least {low} ms"
        return [[(title, "dim")], [(between, "")], [("  kernels have no clock here", "dim")]]
    signs = ["≤" if report.lower_us <= report.bubbles_us else ">"]
    figures, holds = f"  {low} {signs[0]} {ms(report.bubbles_us)}±{ms(report.bubbles_error_us)}", report.above_lower
    if report.upper_us is not None:
        signs.append("≤" if report.bubbles_us <= report.upper_us else ">")
        figures, holds = f"{figures} {signs[1]} {high}", report.within_brackets
    words = "holds within ±" if ">" in signs else "holds"
    verdict = (f"  {words}", "green") if holds else ("  does not hold", "bold red")
    cost = report.instrument_cost_fraction or 0.0
    return [
        [(title, "dim")],
        [(f"{figures} ms", ""), verdict],
        [(f"  stamps add {ms(report.stamps_us or 0.0)}±{ms(report.stamps_error_us or 0.0)} ms ({cost:+.1%})", "")],
    ]
