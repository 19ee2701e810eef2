"""What the command line tells the chat app."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine import Sampling

SIDE_PRESETS = ("panel", "full", "kernels")  # beside the chat
PANEL_PRESETS = (*SIDE_PRESETS, "line", "off")


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Defaults of one chat session.

    ``sampling`` None takes the model's own; ``seed`` None draws one. Reply n of a session uses seed + n,
    so that regenerating gives another text. ``max_tokens`` None means until the context is full.
    ``thinking`` None leaves it to the model's template. ``history_path`` None keeps the prompt history in memory only.
    """

    system: str = ""
    sampling: Sampling | None = None
    seed: int | None = None
    max_tokens: int | None = None
    thinking: bool | None = None
    panel: str = "panel"
    history_path: Path | None = None
