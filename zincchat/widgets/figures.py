"""The figures below the bars: the table, the rates, the last change of a setting, memory, and the legend."""

from __future__ import annotations

from collections.abc import Sequence

from engine import native_record_us, waits_in_memory
from zincchat.alternation import TURN_TOKENS
from zincchat.panel.comparison import Comparison
from zincchat.panel.judgement import bytes_per_token, floor, starved
from zincchat.panel.segment import Segment, Settings
from zincchat.panel.statistics import median, summarise
from zincchat.panel.units import gauge, megabytes, ms, rate
from zincchat.widgets.line_view import Line, LineView
from zincchat.widgets.palette import coloured
from zincchat.widgets.verdict_lines import verdict_lines

DASH = "–"
STAMPED = " ◇"
LEGEND = (
    "R record,S submit,W other GPU idle,› longer: F9",
    "G GPU busy,K kernels ◇,B bubbles ◇,· rest ┊ period",
)


class Figures(LineView):
    """Always the same number of lines, so that nothing jumps; an unknown figure is a dash."""

    def lines(self) -> list[Line]:
        """All lines."""
        return [
            *self._table_lines(),
            self._record_line(),
            self._rate_line(),
            self._floor_line(),
            self._prefill_line(),
            *verdict_lines(self.view, self._segment_now(), self.content_size.width),
            *self._change_lines(),
            self._context_line(),
            self._conversation_line(),
            self._memory_line(),
            *self._legend_lines(),
        ]

    def _segment_now(self) -> Segment:
        return self.view.history.current or Segment(Settings("", True, ""))

    def _table_lines(self) -> list[Line]:
        segment = self._segment_now()
        barriers, dispatches, waits = DASH, DASH, False
        if self.view.history.tokens:
            newest = self.view.history.tokens[-1].timing
            barriers, dispatches = f"{newest.barrier_count}", f"{newest.dispatches}"
            waits = waits_in_memory(newest.mode, newest.barriers)
        joints = f"{barriers} {'waits' if waits else 'barriers'}"
        idle_us = starved(self.view, segment)
        lines = [
            [(f"{'ms':<11}{'last':>7}{'p50':>7}{'p95':>7}{'max':>7}", "dim")],
            _row("token", segment.token_us, f"n {len(segment.token_us):,}", "bold"),
            _row("CPU work", segment.cpu_us),
            _row("lock wait", segment.scheduler_us),
            _row("GPU idle", segment.gpu_idle_us, f"starved {ms(idle_us) if idle_us is not None else DASH}"),
            _row("GPU busy", segment.gpu_us, f"{dispatches} dispatches"),
            _row(f"kernels{STAMPED}", segment.kernels_us, f"n {len(segment.kernels_us):,}"),
        ]
        if segment.bubbles_low_us and not segment.bubbles_us:
            low, high = median(segment.bubbles_low_us), median(segment.bubbles_high_us)
            bracket = f"bubbles{STAMPED}  between {ms(low)} and {ms(high)}"
            return [*lines, [(f"{bracket:<39}  ", ""), (joints, "dim")]]
        return [*lines, _row(f"bubbles{STAMPED}", segment.bubbles_us, joints)]

    def _record_line(self) -> Line:
        segment, tokens = self._segment_now(), self.view.history.tokens
        if not tokens:
            return [(f"record {DASH} ms", "")]
        dispatches = tokens[-1].timing.dispatches
        measured = ms(median(segment.record_us)) if segment.record_us else DASH
        native = f"at native cost {ms(native_record_us(dispatches))} ({dispatches} x 0.2 us)"
        return [(f"record {measured} ms, ", ""), (native, "dim")]

    def _rate_line(self) -> Line:
        history, segment = self.view.history, self._segment_now()
        token_bytes, periods_us = bytes_per_token(self.view, segment), segment.token_us
        live = rate(history.live_tok_s) if history.live_tok_s else DASH
        average = rate(history.average_tok_s) if history.average_tok_s else DASH
        bandwidth = f"{token_bytes / median(periods_us) / 1e3:,.1f}" if token_bytes and periods_us else DASH
        return [(live, "bold green"), (f" tok/s  avg {average}   {bandwidth} GB/s", "")]

    def _floor_line(self) -> Line:
        reached, device = floor(self.view, self._segment_now()), self.view.device
        if device is None or reached is None or device.probe_gb_s is None:
            return [(f"{DASH} of streaming floor", "")]
        tok_s, fraction = reached
        return [
            (f"{fraction:.1%} of streaming floor", ""),
            (f" ({rate(tok_s)} tok/s at {rate(device.probe_gb_s)} GB/s)", "dim"),
        ]

    def _prefill_line(self) -> Line:
        view = self.view
        first = f"{view.first_token_s * 1000:,.0f} ms" if view.first_token_s is not None else DASH
        if view.prefill_tok_s is None:
            return [(f"TTFT {first}   prefill {DASH} tok/s", "")]
        return [
            (f"TTFT {first}   prefill {rate(view.prefill_tok_s)} tok/s", ""),
            (f" ({view.prefill_fed_tokens:,} fed, {view.prefill_kept_tokens:,} kept)", "dim"),
        ]

    def _change_lines(self) -> list[Line]:
        if (comparison := self.view.history.shown_comparison) is not None:
            return compared_lines(comparison)
        change = self.view.history.change()
        if change is None:
            return [
                [("F2, F3 and F4 change a setting: the token before", "dim")],
                [("  and after shows here; F7 has both take turns", "dim")],
            ]
        before, after = (ms(side) if side is not None else DASH for side in (change.before_us, change.after_us))
        speed = f"× {DASH}"
        if change.ratio is not None:
            speed = f"×{max(change.ratio, 1 / change.ratio):.2f}"
            speed = "no change" if speed == "×1.00" else f"{speed} {'faster' if change.ratio > 1 else 'slower'}"
        return [
            [(change.words, "yellow")],
            [
                (f"  {before} → {after} ms", "bold yellow"),
                (f" p50, {speed}, n {change.before_n:,} and {change.after_n:,}", "yellow"),
            ],
        ]

    def _context_line(self) -> Line:
        view, segment = self.view, self._segment_now()
        whole = view.engine.context_tokens if view.engine else 0
        used = f"{view.context_used_tokens:,} / {whole:,}" if whole else DASH
        count = segment.clean_tokens + segment.stamped_tokens
        text = f"context {gauge(view.context_used_tokens, whole, 10)} {used}"
        return [(f"{text}   re-recorded {segment.rerecorded:,} of {count:,}", "")]

    def _conversation_line(self) -> Line:
        engine = self.view.engine
        if engine is None:
            return [(f"  KV cache {DASH}", "")]
        state = f", recurrent state {megabytes(engine.state_bytes)}" if engine.state_bytes else ""
        return [(f"  KV cache {megabytes(self.view.context_used_tokens * engine.kv_token_bytes)}{state}", "")]

    def _memory_line(self) -> Line:
        view = self.view
        process = megabytes(view.process_bytes) if view.process_bytes is not None else DASH
        device = megabytes(view.device_bytes) if view.device_bytes is not None else DASH
        cpu = f"{view.cpu_percent:.0f}%" if view.cpu_percent is not None else DASH
        within = "of it " if view.engine and view.engine.device.is_software else ""
        return [(f"memory {process}, {within}device {device}   process CPU {cpu}", "")]

    def _legend_lines(self) -> list[Line]:
        lines: list[Line] = []
        for entries in LEGEND:
            line: Line = []
            for entry in entries.split(","):
                line += [*coloured(entry[0]), (f"{entry[1:]}  ", "dim")]
            lines.append(line)
        cost = self._segment_now().stamp_cost
        shown = "" if cost is None else f"{cost:+.0%} GPU" if cost > 0 else "GPU cost lost in noise"
        measured = f" ({shown})" if shown else ""
        return [*lines, [(f"◇ stamped token: clocks inside its kernels{measured}", "dim")]]


def compared_lines(comparison: Comparison) -> list[Line]:
    """An A/B: the medians of both sides, the ratio and its interval."""
    found = comparison.result()
    title = f"A/B {comparison.a.settings.change_to(comparison.b.settings)}"
    if found is None:
        return [[(title, "yellow")], [(f"  {2 * TURN_TOKENS} tokens make the first pair of turns", "yellow")]]
    slower, between = found.ratio < 1, ""
    if found.interval is not None:
        low, high = (1 / found.interval[1], 1 / found.interval[0]) if slower else found.interval
        between = f" ({low:.2f}–{high:.2f})"
    speed = f"×{1 / found.ratio if slower else found.ratio:.2f}"
    speed = f"no change{between}" if speed == "×1.00" else f"{speed}{between} {'slower' if slower else 'faster'}"
    return [
        [(title, "yellow")],
        [
            (f"  {ms(found.a_us)} → {ms(found.b_us)} ms", "bold yellow"),
            (f", {speed}, {found.pairs:,} {'pair' if found.pairs == 1 else 'pairs'}", "yellow"),
        ],
    ]


def _row(label: str, values: Sequence[float], suffix: str = "", style: str = "") -> Line:
    summary = summarise(values)
    figures = (summary.last, summary.p50, summary.p95, summary.maximum) if summary else (None,) * 4
    columns = "".join(f"{ms(value) if value is not None else DASH:>7}" for value in figures)
    return [(f"{label:<11}{columns}", style), (f"  {suffix}", "dim")]
