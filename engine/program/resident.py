"""The kernels of the persistent mode: the same sources, built as functions that resident workgroups call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence

from engine.program import resident_rows
from engine.program.op import Op
from engine.program.tuning import RowTuning
from engine.vulkan import joined_source
from engine.vulkan.device import Device
from engine.vulkan.pipelines import Defines, Kernel, Kernels, Resident
from engine.vulkan.shaders import expand

CHECK = "grid_check"
RECORD_PUSH_BYTES = 176  # of a record of the tape: RECORD_WORDS of tape.glsl without the header
# kernels whose result does not depend on how many invocations a workgroup has, by the define that says it
_ANY_LANES = {"norm": "LANES", CHECK: "LANES"}


class ResidentKernels:
    """A KernelSet for ops that are records of a tape. No kernel has a pipeline: ``joined`` makes one of them all."""

    def __init__(self, kernels: Kernels, resident: Resident) -> None:
        self.device: Device = kernels.device
        self.base: Defines = {**kernels.base, "RESIDENT": 1}
        self.resident: Resident | None = resident
        self.tuning: RowTuning | None = kernels.tuning  # of it the lanes
        self.group = resident.group
        self._kernels: dict[tuple[object, ...], Kernel] = {}

    def get(self, name: str, defines: Defines | None = None) -> Kernel:
        """The kernel of shaders/NAME.comp with ``defines``: what it takes, without a pipeline."""
        defines = dict(defines or {})
        if name in _ANY_LANES:
            defines[_ANY_LANES[name]] = self.group
        key = (name, *sorted(defines.items()))
        kernel = self._kernels.get(key)
        if kernel is None:
            label = name + "".join(f" {key}={value}" for key, value in sorted(defines.items()))
            source = self._source(name, defines, {})
            kernel = Kernel(name, defines, label, source, stamped=False, most_push_bytes=RECORD_PUSH_BYTES)
            self._kernels[key] = kernel
        return kernel

    def joined(self, ops: Sequence[Op], stamped: bool) -> Joined:
        """One kernel that runs those of ``ops``, and ``CHECK``; raise EngineError where these workgroups cannot."""
        written: dict[Kernel, list[bool]] = {}
        of_rows: dict[Kernel, list[Op]] = {}
        for op in ops:
            if op.kernel.name == resident_rows.KERNEL:
                of_rows.setdefault(op.kernel, []).append(op)
            known = written.setdefault(op.kernel, [False] * len(op.buffers))
            for index, buffer in enumerate(op.buffers):
                known[index] = known[index] or not buffer.constant
        check = self.get(CHECK)
        written[check] = [True] * 3
        of_walk: Defines = {"WALK_GROUP": self.group}
        if self.device.has_kernel_clock:
            of_walk["WALK_CLOCK"] = 1
            if stamped:
                of_walk["WALK_STAMPS"] = 1
        template = expand("resident", _pairs(of_walk))
        parts = []
        for kernel, flags in written.items():
            defines = kernel.defines | resident_rows.needed(of_rows.get(kernel, ()))
            source = self._source(kernel.name, defines, dict(enumerate(flags)))
            parts.append(joined_source.Part(kernel.label, source))
        return Joined(template, parts, self.group, {kernel: number for number, kernel in enumerate(written)})

    def _source(self, name: str, defines: Defines, written: Mapping[int, bool]) -> str:
        access: Defines = {f"RESIDENT_{slot}": "nonprivate" if flag else "restrict" for slot, flag in written.items()}
        return expand(name, _pairs({**self.base, **defines, **access}))


class Joined:
    """The source of a kernel that runs several, and their ``numbers`` in it. ``key`` names all it is made of."""

    def __init__(
        self, template: str, parts: Sequence[joined_source.Part], group: int, numbers: Mapping[Kernel, int]
    ) -> None:
        self.numbers = numbers
        self.source: Callable[[], str] = lambda: joined_source.join(template, parts, group)
        generator = inspect.getsource(joined_source)
        self.key = "\0".join([generator, str(group), template, *(part.source for part in parts)])


def _pairs(defines: Defines) -> tuple[tuple[str, str], ...]:
    return tuple((key, str(value)) for key, value in sorted(defines.items()))
