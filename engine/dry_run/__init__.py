"""Compile and record for a device that cannot run anything: compile statistics, record times, counts."""

from engine.dry_run.report import RECORDED_MODES, DryRun, KernelStatistics, RecordedProgram
from engine.dry_run.run import compile_and_record
from engine.dry_run.shapes import SHAPES

__all__ = ["RECORDED_MODES", "SHAPES", "DryRun", "KernelStatistics", "RecordedProgram", "compile_and_record"]
