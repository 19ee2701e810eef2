"""Timelines that fit a record's figures, for tests without a GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from engine import TokenTiming, TokenTrace
from engine.decode.program import DecodeProgram, Settings
from engine.decode.step import STEPS, Lap
from engine.profile.timeline import Stamped
from engine.vulkan.calibration import HostAxis

NS = 1000  # in a microsecond


def made_trace(timing: TokenTiming, start_ns: int | None = None, deviation_ns: int | None = 5) -> TokenTrace:
    """Host steps one after the other from ``start_ns`` (default: by the index); the GPU starts 2 us into the submit.

    A stamped record has three kernels, the third behind a barrier, with the record's bubbles before it.
    """
    at_ns = round(timing.index * timing.period_us * NS) if start_ns is None else start_ns
    laps = []
    for step in STEPS:
        end_ns = at_ns + round(getattr(timing, f"{step}_wall_us") * NS)
        laps.append(Lap(step, at_ns, end_ns, round(getattr(timing, f"{step}_us") * NS)))
        at_ns = end_ns
    gpu_start_ns = next(lap.start_ns for lap in laps if lap.step == "submit") + 2 * NS
    gpu_ns = (timing.gpu_total_us or 0.0) * NS
    settings: Any = Settings(timing.mode, timing.passes or ("qkv",) * bool(timing.fusion), timing.barriers)
    axis = HostAxis(0.0, gpu_start_ns, 1.0, deviation_ns)
    return TokenTrace(timing.index, timing.index, settings, laps, axis, (0.0, gpu_ns), _stamped(timing))


def made_op(name: str, piece: str, bytes_moved: int, weight_type: str = "") -> Any:
    """What a timeline reads of an op."""
    defines = {"WEIGHT_TYPE": f"WEIGHT_{weight_type}"} if weight_type else {}
    return SimpleNamespace(
        name=name, piece=piece, kernel=SimpleNamespace(defines=defines), bytes_at=lambda position: bytes_moved
    )


def _stamped(timing: TokenTiming) -> Stamped | None:
    if timing.kernels_us is None or timing.bubbles_us is None:
        return None
    third_ns, gap_ns = timing.kernels_us / 3 * NS, timing.bubbles_us * NS
    ops: Any = [
        made_op("embed", "small", 64, "Q8_0"),
        made_op("blk.0.attn_qkv", "weights", 4096, "Q4_1"),
        made_op("output", "head", 128, "Q8_0"),
    ]
    starts = np.array([0.0, third_ns, 2 * third_ns + gap_ns])
    program = DecodeProgram(ops, [False, False, True], 1)
    return Stamped(program, np.stack((starts, starts + third_ns), axis=1), 0.0, 10.0)
