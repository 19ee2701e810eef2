"""The resident kernel: built for a program's ops, tested on the device, dispatched with a tape."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np

from engine.decode.state import STATE_BYTES
from engine.decode.tape import RECORD_BYTES, RESULTS_BYTES, aborted, encode
from engine.errors import EngineError
from engine.program.op import Op
from engine.program.resident import CHECK, Joined, ResidentKernels
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Kernel, Kernels, Resident

_CHECK_ROUNDS = 200
_PUSH = struct.Struct("<6Q3I")
# polls until a wait is given up, by "software device": of a test, whose stages take microseconds, and of a token
_TEST_PATIENCE = {False: 1 << 15, True: 1 << 28}
_PATIENCE = {False: 1 << 20, True: 1 << 31}


class Run:
    """The memory of one dispatch: what it is told and what it leaves."""

    def __init__(self, memory: Memory) -> None:
        self.order = memory.allocate(16, "upload")  # uint32: tokens to make
        self.results = memory.allocate(RESULTS_BYTES, "readback")
        self.control = memory.allocate(16)

    def begin(self, tokens: int) -> None:
        """Tell the next dispatch how many tokens to make, and forget what the last one left."""
        self.order.host()[:4].view(np.uint32)[0] = tokens
        self.results.host()[:] = 0

    def left(self) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
        """What the dispatch left, uint32."""
        return self.results.host().view(np.uint32)


class Walker:
    """A pipeline that walks tapes of the ops it was built for, by ``resident`` workgroups."""

    def __init__(self, kernels: Kernels, joined: Joined, resident: Resident, label: str) -> None:
        """Compile. Raise EngineError where a kernel does not fit such workgroups or the driver refuses it."""
        self.resident, self._joined, self._device = resident, joined, kernels.device
        self.kernel: Kernel = kernels.of_source(label, joined.source, joined.key, _PUSH.size)

    def tape(self, ops: Sequence[Op], barriers: Sequence[bool]) -> bytes:
        """The program as this kernel reads it."""
        return encode(ops, barriers, self._joined.numbers)

    def op(
        self,
        tape: Slice,
        records: int,
        run: Run,
        state: Slice,
        stamps: int = 0,
        patience: int | None = None,
    ) -> Op:
        """The dispatch of a tape; ``run.control`` must be zero when it begins.

        ``stamps``: where a stamped walker's slots (ops, workgroups) begin on the device.
        """
        if patience is None:
            patience = _PATIENCE[self._device.is_cpu]
        op = Op("persistent", self.kernel, (), (), (self.resident.workgroups, 1, 1))
        addresses = [item.address for item in (tape, run.control, state, run.order, run.results)]
        op.push = _PUSH.pack(*addresses, stamps, records, self.resident.workgroups, patience)
        return op


def most_workgroups(
    device: Device,
    memory: Memory,
    build: Callable[[int], tuple[ResidentKernels, Walker]],
    most: int | None = None,
) -> int:
    """How many workgroups of a walker run at the same time, as its test shows; ``build`` makes it for a number.

    ``most``: of a walker like it, if that is known: more are not tried, since each try compiles a kernel.
    Raise EngineError where not even one passes.
    """
    if device.multiprocessors:
        candidates = [device.multiprocessors]
    elif device.is_cpu:
        candidates = [1]  # a workgroup that waits would take the time of the one it waits for
    else:
        candidates = [1 << power for power in range(9, -1, -1) if most is None or 1 << power <= most]
    problem = None
    for count in candidates:
        resident_kernels, walker = build(count)
        problem = check(device, memory, resident_kernels, walker)
        if problem is None:
            return count
    raise EngineError(problem or "it has no workgroups")


def check(device: Device, memory: Memory, kernels: ResidentKernels, walker: Walker) -> str | None:
    """Run many rounds of CHECK in this kernel: what is wrong, in a few words.

    None where all workgroups are resident and data crosses the grid barrier.
    """
    count = walker.resident.workgroups
    words = 4 * count * walker.resident.group
    kernel = kernels.get(CHECK)
    sizes = (words, words, 256, STATE_BYTES, _CHECK_ROUNDS * RECORD_BYTES, _CHECK_ROUNDS * count * 16)
    with memory.temporary(sum(sizes)) as scratch:
        starts = [sum(sizes[:index]) for index in range(len(sizes))]
        before, after, found, state, tape, stamps = map(scratch.part, starts, sizes)
        ops = []
        for index in range(_CHECK_ROUNDS):
            pair = (before, after) if index % 2 else (after, before)
            ops.append(Op(CHECK, kernel, (*pair, found), (index,), (count, 1, 1)))
        run = Run(memory)
        run.begin(1)
        encoded = walker.tape(ops, [index > 0 for index in range(_CHECK_ROUNDS)])
        with closing(CommandBuffer(device)) as commands:
            commands.begin(ONE_TIME_SUBMIT)
            for target in (run.control, found, state):
                commands.fill(target, 0)
            commands.update(tape, encoded)
            op = walker.op(tape, _CHECK_ROUNDS, run, state, stamps.address, patience=_TEST_PATIENCE[device.is_cpu])
            commands.record([op], [False])
            commands.end()
            commands.run_us()
        wrong, visits = memory.read(found).view(np.uint32)[:2]
    if aborted(run.left()):
        return f"its kernel's {count} workgroups do not all run at the same time"
    if wrong or visits != _CHECK_ROUNDS * count:
        return (
            f"its kernel's {count} workgroups do not see what the others wrote ({wrong} words wrong, {visits} visits)"
        )
    return None
