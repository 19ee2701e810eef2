"""Stamped programs: what their slots hold after a run, whichever memory they lie in."""

from __future__ import annotations

import numpy as np
import pytest

from engine.profile.kernel_clock import kernel_clock
from engine.profile.stamps import Stamps
from engine.program.op import Op
from engine.vulkan.memory import Memory, Slice
from tests.engine.gpu import Gpu


class DiscreteMemory:
    """What a GPU of its own has: kernels' memory is out of the host's reach."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory

    def allocate(self, size: int, kind: str = "device") -> Slice:
        made = self._memory.allocate(size, kind)
        if kind == "device":
            made.pointer = None
        return made


@pytest.mark.parametrize("discrete", [False, True])
def test_spans_follow_each_other_where_barriers_do(discrete: bool) -> None:
    with Gpu() as gpu:
        clock = kernel_clock(gpu.device, gpu.memory, gpu.kernels)
        if clock is None:
            pytest.skip("the kernels of this device cannot read a clock")
        memory = DiscreteMemory(gpu.memory) if discrete else gpu.memory
        stamps = Stamps(memory)  # type: ignore[arg-type]
        kernel = gpu.kernels.get("nothing")
        for count in (3, 40, 7):  # the slots grow, and serve a shorter program after a longer one
            ops = [Op("nothing", kernel, (), (0,), (1 + index % 5, 1 + index % 2, 1)) for index in range(count)]
            program = stamps.twin(ops, gpu.kernels)
            assert (program.read_back is not None) == discrete or not gpu.device.is_cpu
            gpu.commands.record_all(program.ops, [True] * count, read_back=program.read_back)
            for _ in range(2):
                elapsed_us = gpu.commands.run_us()
                spans_ns = program.spans_ns(clock)
                assert spans_ns.shape == (count, 2)
                assert (spans_ns[:, 0] <= spans_ns[:, 1]).all()
                assert (spans_ns[1:, 0] >= spans_ns[:-1, 1]).all()
                assert np.ptp(spans_ns) / 1e3 <= elapsed_us + 1
