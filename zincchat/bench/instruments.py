"""What the engine measures once, outside any token: bandwidth, gap between submissions, brackets, submit hint."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zincchat.bench.setting import Fusion, Setting

if TYPE_CHECKING:
    from engine import Engine


@dataclass(frozen=True)
class Floor:
    """Bytes a token must read, and the bandwidth of this device (GB/s of 1e9 bytes; None where not measured)."""

    token_bytes: int
    probe_gb_s: float | None

    @property
    def tok_s(self) -> float | None:
        """The streaming floor: no token can be faster than reading its bytes."""
        return self.probe_gb_s * 1e9 / self.token_bytes if self.probe_gb_s else None


@dataclass
class Instruments:
    """The engine's own measurements; None where this engine or device has none.

    ``bubbles`` has a report for each barrier policy and fusion: the mode changes neither program nor barriers.
    """

    token_bytes: int
    probe_gb_s: float | None = None
    queued_gap_us: float | None = None
    submit_hint: dict[str, Any] | None = None
    bubbles: dict[tuple[str, Fusion], Any] = field(default_factory=dict)

    def floor(self, setting: Setting) -> Floor:
        """The streaming floor of a setting."""
        return Floor(self.token_bytes, self.probe_gb_s)

    def bubbles_range_us(self, setting: Setting) -> tuple[float, float] | None:
        """(lower, upper) bounds on the bubbles of a setting's token."""
        report = self.bubbles.get((setting.barriers, setting.fusion))
        return None if report is None else (report.lower_us, report.upper_us)


def read_instruments(
    engine: Engine, settings: Sequence[Setting], progress: Callable[[str], None] = lambda text: None
) -> Instruments:
    """Measure all of it, on an engine that is warm and has nothing in flight."""
    progress("memory bandwidth and the cost of a submission")
    instruments = Instruments(
        token_bytes=getattr(engine, "token_bytes", engine.weight_bytes),
        probe_gb_s=getattr(engine, "probe_gb_s", None),
        queued_gap_us=getattr(engine, "queued_gap_us", None),
    )
    if measure_bubbles := getattr(engine, "measure_bubbles", None):
        for setting in settings:
            key = (setting.barriers, setting.fusion)
            if key not in instruments.bubbles:
                progress(f"brackets of the bubbles: {setting}")
                setting.apply(engine)
                instruments.bubbles[key] = measure_bubbles()
    if measure_submit_hint := getattr(engine, "measure_submit_hint", None):
        progress("the one-time-submit hint")
        settings[0].apply(engine)
        instruments.submit_hint = dataclasses.asdict(measure_submit_hint())
    return instruments
