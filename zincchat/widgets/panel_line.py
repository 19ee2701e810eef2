"""The measurements in one line above the prompt, for narrow terminals."""

from __future__ import annotations

from zincchat.panel.bar import cells, parts
from zincchat.panel.cpu_time import host_work_us
from zincchat.panel.judgement import judge
from zincchat.panel.units import ms, rate
from zincchat.widgets.line_view import Line, LineView
from zincchat.widgets.palette import coloured

BAR_WIDTH = 10
NARROW_BAR_WIDTH = 6
NARROW_COLUMNS = 90


class PanelLine(LineView):
    """Settings, the last token with its bar, rate and context; what does not fit is left out from the right."""

    def __init__(self) -> None:
        """Begin with nothing known."""
        super().__init__(id="panel-line")

    def lines(self) -> list[Line]:
        """The line, built from pieces in the order of their worth."""
        line: Line = []
        cells_used = 0
        for piece in self._pieces():
            piece_cells = sum(len(text) for text, _ in piece)
            if cells_used + piece_cells > self.content_size.width:
                break
            line += [*piece, ("  ", "")]
            cells_used += piece_cells + 2
        return [line]

    def _pieces(self) -> list[Line]:
        view = self.view
        if view.settings is None or view.engine is None:
            return [[("the model is loading", "dim")]]
        mode, fused, _ = view.settings.words()
        thinking = "" if view.thinking is None else "·thinking" if view.thinking else "·no thinking"
        pieces: list[Line] = [[(f"{mode}·{fused}·{view.settings.barriers}{thinking}", "bold cyan")]]
        if view.history.comparing:
            pieces.append([("A/B", "bold black on cyan")])
        if view.frozen:
            pieces.append([("FROZEN", "bold black on yellow")])
        is_software = view.engine.device.is_software
        style = "yellow" if is_software else ""
        if not view.history.tokens or view.scale_ms is None:
            return [*pieces, [(f"{'software device' if is_software else 'device'} {view.engine.device.name}", style)]]
        timing = view.history.tokens[-1].timing
        bar_width = NARROW_BAR_WIDTH if self.content_size.width < NARROW_COLUMNS else BAR_WIDTH
        bar = cells(parts(timing), timing.period_us, view.scale_ms * 1000, bar_width).rstrip()
        pieces.append([(f"{ms(timing.period_us)} ms ", ""), *coloured(bar)])
        if view.history.live_tok_s:
            pieces.append([(f"{rate(view.history.live_tok_s)} tok/s", "bold green")])
        if timing.gpu_total_us is not None:
            pieces.append([(f"{'software GPU' if is_software else 'GPU'} {ms(timing.gpu_total_us)}", style)])
        if view.history.comparison and (compared := view.history.comparison.result()):
            pieces.append([(f"×{compared.ratio:.2f} ({compared.words})", "yellow")])
        pieces.append([(f"{view.context_used_tokens}/{view.engine.context_tokens}", "")])
        pieces.append([(f"CPU {ms(host_work_us(timing))}", "")])
        segment = view.history.current
        if segment and segment.bubbles_us:
            pieces.append([(f"bubbles {ms(segment.bubbles_us[-1])}◇", "")])
        if segment and (found := judge(view, segment)):
            pieces.append([(f"▶ {found.kind}", "magenta")])
        return pieces
