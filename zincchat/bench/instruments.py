"""What the engine measures outside any token: bandwidth, gap between submissions, bubbles' bounds, submit hint."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Event
from typing import Any, TypeVar

from engine import BubbleReport, Engine, EngineError, floor_tok_s
from zincchat.bench.setting import Fusion, Setting

Measured = TypeVar("Measured")


@dataclass(frozen=True)
class Floor:
    """Bytes a token must read, and the bandwidth of this device (GB/s of 1e9 bytes; None where not measured)."""

    token_bytes: int
    probe_gb_s: float | None

    @property
    def tok_s(self) -> float | None:
        """The streaming floor: no token can be faster than reading its bytes."""
        return floor_tok_s(self.probe_gb_s, self.token_bytes) if self.probe_gb_s else None


@dataclass
class Instruments:
    """The engine's own measurements; None where one failed, and then ``problems`` has a line for it.

    ``bubbles`` has a report for each barrier policy and fusion: the mode changes neither program nor barriers, but for
    ``persistent``, which has none.
    """

    floor: Floor
    queued_gap_us: float | None = None
    submit_hint: dict[str, Any] | None = None
    bubbles: dict[tuple[str, Fusion], BubbleReport | None] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def bubbles_of(self, setting: Setting) -> BubbleReport | None:
        """The bubble meter's report on a setting's token."""
        return None if setting.mode == "persistent" else self.bubbles.get((setting.barriers, setting.fusion))


def read_instruments(
    engine: Engine,
    settings: Sequence[Setting],
    position: int,
    cancel: Event,
    progress: Callable[[str], None] = lambda text: None,
) -> Instruments:
    """Measure all of it for a token fed at ``position``, between replies; stops early once ``cancel`` is set.

    What the engine cannot measure takes nothing away from what was measured before.
    """
    problems: list[str] = []

    def attempt(what: str, measurement: Callable[[], Measured]) -> Measured | None:
        if cancel.is_set():
            return None
        progress(what)
        try:
            return measurement()
        except EngineError as error:
            problems.append(f"{what}: {error}")
            return None

    instruments = Instruments(
        Floor(engine.token_bytes(position)["total"], attempt("memory bandwidth", lambda: engine.probe_gb_s)),
        attempt("gap between queued submissions", lambda: engine.queued_gap_us),
        problems=problems,
    )
    for setting in settings:
        key = (setting.barriers, setting.fusion)
        if key not in instruments.bubbles and setting.mode != "persistent":
            setting.apply(engine)
            instruments.bubbles[key] = attempt(
                f"bounds of the bubbles: {setting}", lambda: engine.measure_bubbles(position)
            )
    settings[0].apply(engine)
    hint = attempt("one-time-submit hint", lambda: engine.measure_submit_hint(position))
    instruments.submit_hint = None if hint is None else dataclasses.asdict(hint)
    return instruments
