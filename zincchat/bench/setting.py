"""One combination of the engine's switches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine import Engine

Fusion = bool | tuple[str, ...]  # all passes, none, or those named


@dataclass(frozen=True)
class Setting:
    """A mode, a barrier policy and the fusion passes that run."""

    mode: str
    barriers: str
    fusion: Fusion

    def apply(self, engine: Engine) -> None:
        """Switch ``engine`` to it. EngineError where the engine refuses one."""
        engine.mode, engine.barriers = self.mode, self.barriers
        engine.fusion = self.fusion

    def to_json(self) -> dict[str, Any]:
        """``mode, fusion, barriers`` as a token's timing has them, and ``fusion_setting`` as ``--fusion`` takes it."""
        text = fusion_text(self.fusion)
        return {"mode": self.mode, "fusion": text != "off", "fusion_setting": text, "barriers": self.barriers}

    def __str__(self) -> str:
        return f"{self.mode}, barriers {self.barriers}, fusion {fusion_text(self.fusion)}"


def fusion_text(fusion: Fusion) -> str:
    """As ``--fusion`` takes it: on, off, or names with plus signs between."""
    if isinstance(fusion, bool):
        return "on" if fusion else "off"
    return "+".join(fusion) or "off"
