"""Feeds the panel's figures and decides which form of it is on screen."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from zincchat.engine_events import (
    BubblesMeasured,
    DeviceMeasured,
    Loaded,
    Prefilled,
    SettingMeasured,
    TokenArrived,
)
from zincchat.options import SIDE_PRESETS
from zincchat.panel.bar import first_scale_ms, next_scale_ms
from zincchat.panel.segment import Segment, Settings
from zincchat.panel.timeline import TracedToken
from zincchat.panel.view import PanelView
from zincchat.process_figures import ProcessFigures
from zincchat.widgets.panel_line import PanelLine
from zincchat.widgets.side_panel import SidePanel
from zincchat.widgets.timeline import ROWS as TIMELINE_ROWS
from zincchat.widgets.timeline import Timeline

if TYPE_CHECKING:
    from textual.app import App
    from textual.geometry import Size

    from engine import Token

PANEL_MIN_COLUMNS = 100
PANEL_MIN_ROWS = 29


class PanelController:
    """Owns the live view; while frozen, the widgets draw a copy of it instead."""

    def __init__(self, app: App[None], preset: str) -> None:
        """Begin with nothing known and ``preset`` chosen."""
        self.view = PanelView()
        self.preset = preset
        self.timeline = False
        self.roomy = True
        self._app = app
        self._frozen_view: PanelView | None = None
        self._changed = False
        self._process = ProcessFigures()

    def lay_out(self, size: Size | None = None) -> None:
        """Show the panel, its line or neither, by preset and terminal size, and the timeline where it is wanted."""
        size = size or self._app.size
        rows = size.height - TIMELINE_ROWS * self.timeline
        self.roomy = size.width >= PANEL_MIN_COLUMNS and rows >= PANEL_MIN_ROWS
        wanted = self.preset in SIDE_PRESETS
        self._app.query_one(Timeline).display = self.timeline
        side = self._app.query_one(SidePanel)
        side.choose(self.preset, rows)
        side.display = wanted and self.roomy
        self._app.query_one(PanelLine).display = self.preset == "line" or (wanted and not self.roomy)
        self.refresh()

    def loaded(self, event: Loaded, settings: Settings) -> None:
        """Take in what the engine is."""
        self.view.engine = event
        self.view.settings = settings
        self.view.device_bytes = event.device_bytes
        self.refresh()

    def device_measured(self, event: DeviceMeasured) -> None:
        """Take in what was measured of the device."""
        self.view.device = event
        self.refresh()

    def measured(self, event: BubblesMeasured | SettingMeasured) -> None:
        """Take in a result that the user asked for."""
        if isinstance(event, BubblesMeasured):
            self.view.bubbles = event.report
        else:
            self._setting_measured([token for token in event.tokens if token.timing.index > 0])
        self.refresh()

    def _setting_measured(self, tokens: list[Token]) -> None:
        view = self.view
        view.history.runs.replace(token.timing for token in tokens)
        if tokens and Settings.of(tokens[0].timing) == view.settings:
            view.measured = Segment(view.settings)
            for token in tokens:
                view.measured.add(token.timing)
                view.kernels.add(token.trace)

    def prefilled(self, event: Prefilled) -> None:
        """Take in a prefill; the figures appear with the reply's first token."""
        self.view.history.begin_reply()
        self.view.first_token_s = None
        self.view.prefill_tok_s = event.fed_tokens / event.seconds if event.seconds > 0 else None
        self.view.prefill_fed_tokens = event.fed_tokens
        self.view.prefill_kept_tokens = event.kept_tokens

    def token(self, event: TokenArrived) -> None:
        """Take in a token; it is drawn with the next refresh_if_changed."""
        view = self.view
        if view.first_token_s is None:
            view.first_token_s = event.since_send_s
        timing = event.token.timing
        view.history.add(event.position, timing)
        view.traces.append(TracedToken(event.position, event.token.trace))
        view.kernels.add(event.token.trace)
        if view.scale_ms is None and view.history.tokens:
            view.scale_ms = first_scale_ms(timing, bool(view.engine and view.engine.device.is_software))
        view.context_used_tokens = event.position
        view.device_bytes = event.device_bytes
        self._changed = True

    def refresh_if_changed(self) -> None:
        """Draw where a token arrived since the last time: nothing else makes the panel move."""
        if self._changed:
            self._changed = False
            if (sample := self._process.sample()) is not None:
                self.view.process_bytes, self.view.cpu_percent = sample
            if self._frozen_view is None:
                self.refresh()

    def refresh(self) -> None:
        """Draw now."""
        shown = self._frozen_view or self.view
        shown.settings, shown.thinking = self.view.settings, self.view.thinking
        query = self._app.query_one
        for widget in (query(SidePanel), query(PanelLine), query(Timeline)):
            if widget.display:
                widget.show(shown)

    def set_preset(self, preset: str) -> None:
        """Choose one of PANEL_PRESETS."""
        self.preset = preset
        self.lay_out()

    def toggle_timeline(self) -> None:
        """Show the timeline, or hide it."""
        self.timeline = not self.timeline
        self.lay_out()

    def set_settings(self, settings: Settings) -> None:
        """Show what the user has just chosen, before any token runs under it."""
        self.view.settings = settings
        self.view.history.setting_changed()
        self.refresh()

    def set_thinking(self, thinking: bool | None) -> None:
        """Show whether the model thinks before it answers; None: it has no switch for that."""
        self.view.thinking = thinking
        self.refresh()

    def begin_comparison(self, a: Settings, b: Settings) -> None:
        """Gather an A/B from the next token on."""
        self.view.history.begin_comparison(a, b)
        self.refresh()

    def end_comparison(self) -> None:
        """Gather no more of it; what it found stays."""
        self.view.history.end_comparison()
        self.refresh()

    def set_scale(self, scale_ms: float | None = None) -> None:
        """Take the scale given, or the next larger one."""
        self.view.scale_ms = scale_ms or next_scale_ms(self.view.scale_ms or 0)
        if self._frozen_view is not None:
            self._frozen_view.scale_ms = self.view.scale_ms
        self.refresh()

    def toggle_freeze(self) -> bool:
        """Hold the picture, or let it go on; returns whether it is held now."""
        if self._frozen_view is None:
            self._frozen_view = copy.deepcopy(self.view)
            self._frozen_view.frozen = True
        else:
            self._frozen_view = None
        self.refresh()
        return self._frozen_view is not None
