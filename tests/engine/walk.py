"""Ops run by resident workgroups, as the persistent mode runs them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.decode import walker
from engine.decode.tape import RECORD_BYTES
from engine.decode.walker import Run, Walker
from engine.program.op import Op
from engine.program.resident import ResidentKernels
from engine.vulkan.memory import Slice
from tests.engine.gpu import Gpu


def walk(gpu: Gpu, kernels: ResidentKernels, ops: Sequence[Op], state: Slice) -> None:
    """Run ops as a tape, with a grid barrier before each."""
    assert kernels.resident is not None
    built = Walker(gpu.kernels, kernels.joined(ops, stamped=False), kernels.resident, "resident")
    run, tape = Run(gpu.memory), gpu.memory.allocate(len(ops) * RECORD_BYTES)
    run.begin(1)
    gpu.memory.write(run.control, np.zeros(16, np.uint8))
    gpu.memory.write(tape, np.frombuffer(built.tape(ops, [True] * len(ops)), np.uint8))
    gpu.memory.flush()
    gpu.run(built.op(tape, len(ops), run, state))
    assert run.left()[0] == 0, "aborted"


def one_short(op):  # type: ignore[no-untyped-def]
    """Dispatches that lack one of the workgroups that all others wait for."""

    def made(self, *args, **kwargs):  # type: ignore[no-untyped-def]
        found = op(self, *args, **kwargs)
        fields = list(walker._PUSH.unpack(found.push))
        fields[7] += 1
        found.push = walker._PUSH.pack(*fields)
        return found

    return made
