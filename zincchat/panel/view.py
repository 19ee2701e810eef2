"""Everything the panel draws, in one object that the widgets read."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zincchat.engine_events import DeviceMeasured, Loaded
from zincchat.panel.kernel_history import KernelHistory
from zincchat.panel.segment import Segment, Settings
from zincchat.panel.timeline import TracedToken
from zincchat.panel.token_history import TokenHistory

if TYPE_CHECKING:
    from engine import BubbleReport

TRACED_TOKENS = 12  # a pipeline's steps stand between those of tokens before


@dataclass(slots=True)
class PanelView:
    """The figures on screen. None means not known yet and is drawn as a dash."""

    settings: Settings | None = None
    engine: Loaded | None = None
    device: DeviceMeasured | None = None
    bubbles: BubbleReport | None = None
    measured: Segment | None = None  # the tokens of a measurement under the settings of then
    history: TokenHistory = field(default_factory=TokenHistory)
    traces: deque[TracedToken] = field(default_factory=lambda: deque(maxlen=TRACED_TOKENS))
    kernels: KernelHistory = field(default_factory=KernelHistory)
    scale_ms: float | None = None
    frozen: bool = False
    thinking: bool | None = None  # None: the model has no switch for it
    context_used_tokens: int = 0
    first_token_s: float | None = None
    prefill_tok_s: float | None = None
    prefill_fed_tokens: int = 0
    prefill_kept_tokens: int = 0
    device_bytes: int | None = None
    process_bytes: int | None = None
    cpu_percent: float | None = None
