"""A token's timeline: the host's steps, the GPU's work and, of a stamped token, each kernel, on one time axis.

The axis is the host's: perf_counter_ns. Device time gets there by the calibrated timestamps, and the clock
that kernels read gets to device time by its measured offset (engine.profile.kernel_clock).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
import numpy.typing as npt

from engine.decode.program import DecodeProgram, Settings
from engine.decode.step import Lap
from engine.profile.kernel_clock import KernelClock
from engine.program.op import Op
from engine.vulkan.calibration import HostAxis


class KernelSpan(NamedTuple):
    """One dispatch of a stamped token, from its first workgroup's start to its last one's end, ns on the host's axis.

    ``weight_type`` is the quantisation that it reads, "" where it reads no matrix; ``bytes_moved`` what it must read
    and write (``Op.bytes_at``); ``barrier`` says whether one stands before it.
    """

    name: str
    weight_type: str
    piece: str
    bytes_moved: int
    start_ns: float
    end_ns: float
    barrier: bool


class Stamped(NamedTuple):
    """What the stamps of a token say: ``spans_ns`` are (ops, 2) starts and ends after the first stamp.

    ``first_device_ns`` is the device time of that stamp, give or take ``deviation_ns``.
    """

    program: DecodeProgram
    spans_ns: npt.NDArray[np.float64]
    first_device_ns: float
    deviation_ns: float


@dataclass(frozen=True, slots=True)
class TokenTrace:
    """Where one token's time lies. Cheap to make: it holds what was measured, and places it when asked.

    Times are nanoseconds of perf_counter_ns. Where ``calibrated`` is False the driver offers no calibrated
    timestamps: GPU times are then placed only so that they lie between their submit and their fence.
    """

    index: int  # within its reply
    position: int  # in the context, where the token before it was fed to make it
    settings: Settings
    laps: Sequence[Lap]  # host steps in order; engine.decode.step.STEPS names them
    axis: HostAxis
    device_ns: tuple[float, float]  # the token's two timestamps, device time
    stamped: Stamped | None

    @property
    def calibrated(self) -> bool:
        """Whether host and GPU times can be compared, to ``deviation_ns``."""
        return self.axis.deviation_ns is not None

    @property
    def deviation_ns(self) -> int | None:
        """The driver's statement of how far apart the two clocks may have been read; None if not calibrated."""
        return self.axis.deviation_ns

    @property
    def submit_ns(self) -> int | None:
        """When the host began to submit the token; None where it was submitted with another."""
        return next((lap.start_ns for lap in self.laps if lap.step == "submit"), None)

    @property
    def gpu_start_ns(self) -> float:
        """Start of the token's work on the GPU."""
        return self.axis.to_host_ns(self.device_ns[0])

    @property
    def gpu_end_ns(self) -> float:
        """End of the token's work on the GPU."""
        return self.axis.to_host_ns(self.device_ns[1])

    @property
    def kernel_spans_ns(self) -> npt.NDArray[np.float64]:
        """(dispatches, 2): start and end of each in the program's order; (0, 2) unless this token was stamped."""
        if self.stamped is None:
            return np.empty((0, 2))
        first_ns = self.axis.to_host_ns(self.stamped.first_device_ns)
        return self.stamped.spans_ns * self.axis.rate + first_ns

    @property
    def kernels(self) -> list[KernelSpan]:
        """The dispatches with their names, in the program's order; empty unless this token was stamped."""
        if self.stamped is None:
            return []
        program = self.stamped.program
        return [
            KernelSpan(op.name, _weight_type(op), op.piece, op.bytes_at(self.position), start, end, barrier)
            for op, barrier, (start, end) in zip(
                program.ops, program.barriers, self.kernel_spans_ns.tolist(), strict=True
            )
        ]

    def __deepcopy__(self, memo: object) -> Self:
        """Itself: it never changes, and what it refers to on the device cannot be copied."""
        return self


def _weight_type(op: Op) -> str:
    return str(op.kernel.defines.get("WEIGHT_TYPE", "")).removeprefix("WEIGHT_")


def place(
    program: DecodeProgram,
    spans_ns: npt.NDArray[np.float64],
    clock: KernelClock,
    first_stamp: int,
    device_ns: tuple[float, float],
) -> Stamped:
    """Stamps in device time, by the clock's measured offset; ``device_ns`` are the token's two timestamps.

    A tick measured over a fraction of a second drifts over minutes, but the timestamps stand around all kernels:
    the spans are moved by as little as puts them in between. Spans longer than that begin at the first timestamp.
    """
    earliest = device_ns[0] - float(spans_ns[:, 0].min())
    latest = device_ns[1] - float(spans_ns[:, 1].max())
    first_ns = max(earliest, min(clock.to_device_ns(first_stamp, device_ns[0]), latest))
    return Stamped(program, spans_ns, first_ns, min(clock.deviation_ns, max(latest - earliest, 0.0)))


def causal_axis(axis: HostAxis | None, submit_ns: int, finished_ns: int, device_ns: tuple[float, float]) -> HostAxis:
    """An axis for a device without calibrated timestamps, moved from the token before by as little as is needed.

    It puts a token's GPU work after its submit and before the host saw its fence.
    """
    offset_ns = submit_ns - device_ns[0] if axis is None else axis.host_ns - axis.device_ns
    offset_ns = max(submit_ns - device_ns[0], min(offset_ns, finished_ns - device_ns[1]))
    return HostAxis(0.0, offset_ns, 1.0, None)
