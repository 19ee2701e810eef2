"""One device for kernel tests: run a kernel on numpy arrays and read back what it wrote."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.decode.flags import Flags
from engine.program.op import Op
from engine.program.schedule import FLAGS
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.instance import Instance
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Defines, Kernels

POISON = 0xCB  # every output byte before a run, so that an element nobody writes shows


class Gpu:
    """A device with memory and kernels. ``row_kernels=False`` builds the GPU variants on any device."""

    def __init__(self, validation: bool = False, binding: str = "addresses", row_kernels: bool | None = None) -> None:
        self.instance = Instance(validation)
        self.device = Device(self.instance, binding=binding, row_kernels=row_kernels)
        self.memory = Memory(self.device)
        self.kernels = Kernels(self.device)
        self.commands = CommandBuffer(self.device)

    def __enter__(self) -> Gpu:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def array(self, data: npt.NDArray[Any], constant: bool = False) -> Slice:
        """A slice holding a copy of ``data``."""
        target = self.memory.allocate(data.nbytes, constant=constant)
        self.memory.write(target, data)
        self.memory.flush()
        return target

    def poisoned(self, size_bytes: int) -> Slice:
        """A slice full of POISON."""
        return self.array(np.full(size_bytes, POISON, np.uint8))

    def run(self, *ops: Op) -> None:
        """Run ops in order, a barrier before each, and wait."""
        self.commands.record_all(ops, [True] * len(ops), ONE_TIME_SUBMIT)
        self.commands.run_us()

    def dispatch(
        self,
        name: str,
        buffers: tuple[Slice, ...],
        scalars: tuple[int | float, ...],
        groups: tuple[int, int, int],
        defines: Defines | None = None,
    ) -> None:
        """Run shaders/NAME.comp once."""
        self.run(Op(name, self.kernels.get(name, defines), buffers, scalars, groups))

    def read(self, source: Slice, dtype: npt.DTypeLike = np.float32) -> npt.NDArray[Any]:
        """The slice's contents as a flat array of ``dtype``."""
        return self.memory.read(source).view(dtype)

    def close(self) -> None:
        self.device.wait_idle()
        self.commands.close()
        self.kernels.close()
        self.memory.close()
        self.device.close()
        self.instance.close()


class WaitingGpu(Gpu):
    """Kernels wait in memory for those before them (barriers ``flags``)."""

    def __init__(self) -> None:
        super().__init__()
        self._flags = Flags(self.device, self.memory, self.kernels)

    def run(self, *ops: Op) -> None:
        """Run ops in order, each waiting for those before."""
        ops_and_barriers = self._flags.recordable(ops, [True] * len(ops), FLAGS)
        self.commands.record_all(*ops_and_barriers, ONE_TIME_SUBMIT)
        self.commands.run_us()
        assert not self._flags.stuck
