"""Barrier policy ``flags``: a token's kernels wait for each other in memory instead of at pipeline barriers.

Every dispatch is recorded without a barrier. Its workgroups launch while the one before still runs, ask for weights,
and wait until a counter says that all workgroups before the last barrier have arrived (shaders/include/flags.glsl).
Behind that they load what others wrote past the caches that workgroups do not share.
All this needs dispatches of a queue to start in order, which GPUs do and Vulkan does not promise: ``check`` shows it,
every wait is bounded, and where kernels waited in vain the token is an error and the policy is not used again.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from contextlib import closing

import numpy as np

from engine.program.op import Op
from engine.program.schedule import FLAGS
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Defines, Kernel, Kernels

_PUSH = struct.Struct("<QII")  # FLAGS_PUSH: the control, what must have arrived, what a workgroup adds
_CONTROL = struct.Struct("<IIQ")
_WORD = 0xFFFFFFFF
_FEATURES = ("vulkanMemoryModel", "vulkanMemoryModelDeviceScope")
# polls until a wait is given up, by "software device": about a second on a GPU
_PATIENCE = {False: 1 << 20, True: 1 << 30}
_CHECK, _CHECK_ROUNDS, _CHECK_LANES = "grid_check", 200, 256
_CHECK_GROUPS = {False: 2048, True: 8}  # more than a GPU holds at once

Recordable = tuple[Sequence[Op], Sequence[bool]]  # ops, and whether a pipeline barrier stands before each


def unavailable(device: Device) -> str | None:
    """Why a device cannot have this policy, as far as that is known without a test; None where it may."""
    if device.binding == "descriptors":
        return "the validation layer, which follows descriptors, knows no waits in memory"
    missing = [name for name in _FEATURES if name not in device.features]
    return f"{device.info.name} lacks {', '.join(missing)}" if missing else None


class Flags:
    """The counter that a token's kernels wait at, and the builds of kernels that do."""

    def __init__(self, device: Device, memory: Memory, kernels: Kernels) -> None:
        self._device, self._memory, self._kernels = device, memory, kernels
        self._control = memory.allocate(_CONTROL.size)
        self._report = memory.allocate(16, "readback")
        self._stuck = self._report.host()[:4].view(np.uint32) if memory.backed else np.zeros(1, np.uint32)
        self._defines: Defines = {"FLAGS": _PATIENCE[device.is_cpu]}
        if device.barriers_order_memory:
            self._defines["BARRIERS_ORDER_MEMORY"] = 1
        self._twins: dict[Kernel, Kernel] = {}
        self.reset()

    @property
    def stuck(self) -> bool:
        """Whether a kernel waited in vain since the last ``reset``."""
        return bool(self._stuck[0])

    def reset(self) -> None:
        """Zero the counter; nothing may be in flight."""
        self._stuck[0] = 0
        control = _CONTROL.pack(0, 0, self._report.address)
        self._memory.write(self._control, np.frombuffer(control, np.uint8))
        self._memory.flush()

    def recordable(self, ops: Sequence[Op], barriers: Sequence[bool], policy: str) -> Recordable:
        """What to record so that ops run as ``barriers`` says: as they are, or under ``flags`` by waiting kernels."""
        if policy != FLAGS:
            return ops, barriers
        if ops[-1].groups != (1, 1, 1):  # the last one zeroes the counter
            ops, barriers = [*ops, Op("end", self._kernels.get("nothing"), (), (0,), (1, 1, 1))], [*barriers, True]
        control, target, total, last = self._control.address, 0, 0, len(ops) - 1
        waiting = []
        for index, (op, barrier) in enumerate(zip(ops, barriers, strict=True)):
            if barrier:
                target = total
            x, y, z = op.groups
            total += x * y * z
            arrivals = 1 if index < last else 1 - total & _WORD
            waiting.append(op.with_kernel(self._twin(op.kernel), _PUSH.pack(control, target, arrivals) + op.push))
        return waiting, [False] * len(waiting)

    def jobs(self, ops: Iterable[Op], stamped: bool) -> list[tuple[str, Defines, bool]]:
        """What ``Kernels.prepare`` must build for ``ops`` to wait, or for their stamped twins to."""
        kernels = dict.fromkeys(op.kernel for op in ops)
        return [(kernel.name, kernel.defines | self._defines, stamped) for kernel in kernels]

    def check(self) -> str | None:
        """Run many dispatches that each check what the one before wrote: what is wrong, in a few words, or None."""
        groups = _CHECK_GROUPS[self._device.is_cpu]
        kernel = self._kernels.get(_CHECK, {"LANES": _CHECK_LANES})
        words = 4 * groups * _CHECK_LANES
        with self._memory.temporary(2 * words + 256) as scratch:
            before, after, found = scratch.part(0, words), scratch.part(words, words), scratch.part(2 * words, 256)
            ops = []
            for index in range(_CHECK_ROUNDS):
                pair = (before, after) if index % 2 else (after, before)
                ops.append(Op(_CHECK, kernel, (*pair, found), (index,), (groups, 1, 1)))
            with closing(CommandBuffer(self._device)) as commands:
                commands.begin(ONE_TIME_SUBMIT)
                commands.fill(found, 0)
                commands.record(*self.recordable(ops, [index > 0 for index in range(_CHECK_ROUNDS)], FLAGS))
                commands.end()
                commands.run_us()
            wrong, visits = self._memory.read(found).view(np.uint32)[:2]
        if self.stuck:
            self.reset()
            return "a dispatch waited in vain for the one before it: they do not start in order here"
        if wrong or visits != _CHECK_ROUNDS * groups:
            return f"dispatches do not see what those before them wrote ({wrong} words wrong, {visits} visits)"
        return None

    def _twin(self, kernel: Kernel) -> Kernel:
        twin = self._twins.get(kernel)
        if twin is None:
            twin = self._twins[kernel] = self._kernels.get(kernel.name, kernel.defines | self._defines)
        return twin
