"""What a dry run found, as data. ``dataclasses.asdict`` of a DryRun is its JSON."""

from __future__ import annotations

from dataclasses import dataclass

RECORDED_MODES = ("rerecord", "reuse")


@dataclass(frozen=True, slots=True)
class KernelStatistics:
    """One kernel as the driver's compiler left it."""

    name: str
    defines: dict[str, str | int]  # FLAGS in the build that waits in memory
    stamped: bool  # the twin that notes the device clock
    fused_dispatches: int  # in a decode token; 0 for prompt kernels and twins
    unfused_dispatches: int
    subgroup_size: int
    vgprs: int
    sgprs: int
    spilled_vgprs: int
    spilled_sgprs: int
    scratch_bytes: int
    lds_bytes: int
    code_bytes: int
    waves_per_simd: int

    @property
    def spills(self) -> bool:
        """Whether values that found no register go through memory."""
        return bool(self.spilled_vgprs or self.spilled_sgprs or self.scratch_bytes)

    @property
    def waits(self) -> bool:
        """Whether it is the build that waits in memory (barrier policy flags)."""
        return "FLAGS" in self.defines

    @property
    def label(self) -> str:
        """Name and defines on one line."""
        words = [self.name, *(f"{key}={value}" for key, value in sorted(self.defines.items()))]
        return " ".join(words + ["(stamped)"] * self.stamped)


@dataclass(frozen=True, slots=True)
class RecordedProgram:
    """One decode token's program, built and recorded. Times are medians of the thread's CPU time, microseconds.

    Under the policy flags ``barrier_count`` counts how often kernels wait in memory: no barrier is recorded.
    """

    fusion: bool
    barriers: str
    dispatches: int
    barrier_count: int
    build_us: float
    record_us: dict[str, float]  # by mode, of RECORDED_MODES


@dataclass(frozen=True, slots=True)
class DryRun:
    """A model's kernels and programs on a device where nothing was executed."""

    shape: str
    device: str
    driver: str
    api_version: str
    subgroup_size: int
    context_tokens: int
    bucket_tokens: int
    weight_bytes: int  # of weights, read by one token
    kernels: list[KernelStatistics]
    programs: list[RecordedProgram]
