"""The figures below the bars: the table, the rates, the last change of a setting, memory, and the legend."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.widget import Widget

from zincchat.panel.statistics import median, summarise
from zincchat.panel.token_history import Segment, Settings
from zincchat.panel.units import gauge, megabytes, ms, rate
from zincchat.panel.view import PanelView
from zincchat.widgets.palette import coloured

DASH = "–"
STAMPED = " ◇"


class Figures(Widget):
    """Always the same number of lines, so that nothing jumps; an unknown figure is a dash."""

    def __init__(self) -> None:
        """Begin with dashes."""
        super().__init__()
        self.view = PanelView()

    def show(self, view: PanelView) -> None:
        """Draw ``view``."""
        self.view = view
        self.refresh()

    def render(self) -> Text:
        """All lines."""
        text = Text("\n", no_wrap=True, overflow="ellipsis").join(
            [*self._table_lines(), self._rate_line(), self._prefill_line(), *self._change_lines(), self._context_line(), self._memory_line(), *legend()]
        )
        if (cost := self._segment_now().stamp_cost) is not None:
            text.append(f" ({cost:+.0%} GPU)", "dim")
        return text

    def _segment_now(self) -> Segment:
        return self.view.history.current or Segment(Settings("", True, ""))

    def _table_lines(self) -> list[Text]:
        segment = self._segment_now()
        barriers = dispatches = DASH
        if self.view.history.tokens:
            newest = self.view.history.tokens[-1].timing
            barriers, dispatches = f"{newest.barrier_count}", f"{newest.dispatches}"
        rows = [
            Text(f"{'ms':<11}{'last':>7}{'p50':>7}{'p95':>7}{'max':>7}", "dim"),
            _row("token", segment.token_us, f"n {segment.clean_tokens:,}", "bold"),
            _row("CPU work", segment.cpu_us),
            _row("lock wait", segment.scheduler_us),
            _row("GPU idle", segment.gpu_idle_us),
            _row("GPU busy", segment.gpu_us, f"{dispatches} dispatches"),
            _row(f"kernels{STAMPED}", segment.kernels_us, f"n {segment.stamped_tokens:,}"),
        ]
        if segment.bubbles_low_us and not segment.bubbles_us:
            low, high = median(segment.bubbles_low_us), median(segment.bubbles_high_us)
            rows.append(Text(f"bubbles{STAMPED}   between {ms(low)} and {ms(high)}".ljust(41) + f"{barriers} barriers"))
        else:
            rows.append(_row(f"bubbles{STAMPED}", segment.bubbles_us, f"{barriers} barriers"))
        return rows

    def _rate_line(self) -> Text:
        history, engine, periods_us = self.view.history, self.view.engine, self._segment_now().token_us
        text = Text()
        text.append(rate(history.live_tok_s) if history.live_tok_s else DASH, "bold green")
        text.append(f" tok/s  avg {rate(history.average_tok_s) if history.average_tok_s else DASH}")
        text.append(f"   {DASH}" if not (engine and periods_us) else "   ")
        if engine and periods_us:
            text.append(f"{engine.weight_bytes / median(periods_us) / 1e3:,.1f}")
        return text.append(" GB/s of weights alone")

    def _prefill_line(self) -> Text:
        view = self.view
        first = f"{view.first_token_s * 1000:,.0f} ms" if view.first_token_s is not None else DASH
        text = Text(f"first token {first}   prefill ")
        if view.prefill_tok_s is None:
            return text.append(f"{DASH} tok/s")
        text.append(f"{rate(view.prefill_tok_s)} tok/s")
        return text.append(f" ({view.prefill_fed_tokens:,} fed, {view.prefill_kept_tokens:,} kept)", "dim")

    def _change_lines(self) -> list[Text]:
        change = self.view.history.change()
        if change is None:
            return [Text("F2, F3 and F4 change a setting:", "dim"), Text("  the token before and after shows here", "dim")]
        text = Text("  token ", "yellow")
        text.append(f"{ms(change.before_us)} → {ms(change.after_us)} ms", "bold yellow")
        ratio, verdict = (change.ratio, "faster") if change.ratio >= 1 else (1 / change.ratio, "slower")
        text.append(f" p50, ×{ratio:.2f} {verdict}, n {change.before_n:,} and {change.after_n:,}", "yellow")
        return [Text(change.words, "yellow"), text]

    def _context_line(self) -> Text:
        view, segment = self.view, self._segment_now()
        whole = view.engine.context_tokens if view.engine else 0
        text = Text(f"context {gauge(view.context_used_tokens, whole, 10)} ")
        text.append(f"{view.context_used_tokens:,} / {whole:,}" if whole else DASH)
        count = segment.clean_tokens + segment.stamped_tokens
        return text.append(f"   re-recorded {segment.rerecorded:,} of {count:,}")

    def _memory_line(self) -> Text:
        view = self.view
        process = megabytes(view.process_bytes) if view.process_bytes is not None else DASH
        device = megabytes(view.device_bytes) if view.device_bytes is not None else DASH
        cpu = f"{view.cpu_percent:.0f}%" if view.cpu_percent is not None else DASH
        within = "of it " if view.engine and view.engine.device.is_software else ""
        return Text(f"memory {process}, {within}device {device}   process CPU {cpu}")


def _row(label: str, values: Sequence[float], suffix: str = "", style: str = "") -> Text:
    summary = summarise(values)
    figures = (summary.last, summary.p50, summary.p95, summary.maximum) if summary else (None,) * 4
    columns = "".join(f"{ms(value) if value is not None else DASH:>7}" for value in figures)
    text = Text()
    text.append(f"{label:<11}{columns}", style)
    return text.append(f"  {suffix}", "dim")


def legend() -> list[Text]:
    """What the letters of a bar mean."""
    first, second = Text(), Text()
    for line, entries in ((first, "R record,S submit,W GPU idle otherwise"), (second, "G GPU busy,K kernels ◇,B bubbles ◇")):
        for entry in entries.split(","):
            line.append_text(coloured(entry[0])).append(f"{entry[1:]}  ", "dim")
    first.append("› longer: F9", "dim")
    second.append("· rest ┊ period", "dim")
    return [first, second, Text("◇ stamped token: clocks inside its kernels", "dim")]
