"""Sums over the CPU steps of one token record."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine import TokenTiming


def host_work_us(timing: TokenTiming) -> float:
    """Thread time of every CPU step but the wait for the fence."""
    return timing.build_us + timing.record_us + timing.patch_us + timing.submit_us + timing.readback_us


def scheduler_wait_us(timing: TokenTiming) -> float:
    """Wall time of the same steps beyond their thread time: waiting for the interpreter lock or for a core."""
    wall_us = (
        timing.build_wall_us
        + timing.record_wall_us
        + timing.patch_wall_us
        + timing.submit_wall_us
        + timing.readback_wall_us
    )
    return max(0.0, wall_us - host_work_us(timing))
