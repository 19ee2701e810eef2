"""The bubble meter: how long no kernel of a decode program runs, by the kernels' own clock and between two bounds.

Three programs besides the clean one and its stamped twin give the bounds, which need no clock in the kernels:

    empty          one kernel that does nothing: what any submission takes between its two timestamps
    empty chain    one such kernel for each barrier of the program, behind a barrier
    filled         the clean program; on a software device with each workgroup of a dispatch that has fewer than there
                   are processors repeated, until there are enough
    repeated       the same with each workgroup once more

Below: each barrier makes the GPU drain and start again, which takes no less than with nothing to do on either side. So
the bubbles are at least empty chain - empty.
Above: a dispatch with each workgroup once more does its work again, within the same launch and behind the same barrier.
It takes longer by at most the time its kernel took: workgroups that run again need no longer than they did at first. So
kernels run for at least repeated - filled, and bubbles are at most the rest of the token, clean - (repeated - filled).
(On a software device a second workgroup also wakes a second thread, which is no work of its own: hence filled.)

Under the policy flags all programs but `unordered` consist of kernels that wait in memory, and the empty chain is one
of empty kernels that do: its links are what a wait takes with nothing to do on either side. There is no upper bound
then. A workgroup asks for weights while the kernels before it run; its repetition, launched behind the wait, has them
to fetch within the kernel, and so takes longer than the kernel's own time, which begins behind the wait.

Two more programs are there to be seen: `null`, the null twin (the program's own kernels, told to return at once), and
`unordered`, the clean program without its barriers. Neither gives a bound. Launching the null twin's many workgroups
is time that the token spends while other kernels run, and to be told takes its kernels longer than a kernel's own gap:
on an H200 even one workgroup for each barrier takes 3% longer than the stamped bubbles. clean - unordered is next to
nothing on a software device, which runs dispatches one after another with or without barriers, with gaps either way.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import replace

from engine.decode.flags import Flags, Recordable
from engine.decode.program import DecodeProgram, Settings
from engine.profile.bubble_report import BubbleReport
from engine.profile.interleave import Rounds, interleaved, median_error, run_us
from engine.profile.kernel_clock import KernelClock
from engine.profile.stamps import Stamps, account, span_us
from engine.program.op import PIECES, Op
from engine.program.schedule import FLAGS
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels

_RETURN_AT_ONCE = bytes(8)  # the null twin's stamp address
ROUNDS = Rounds(4, 16, 3.0)
FEW_ROUNDS = Rounds(2, 4, 0.2, clocks=False)  # between two tokens of a reply, whose clocks are up


class BubbleMeter:
    """Measures programs; nothing may be in flight. ``clock`` None: bounds only."""

    def __init__(
        self, device: Device, memory: Memory, kernels: Kernels, clock: KernelClock | None, flags: Flags
    ) -> None:
        self._device, self._kernels, self._clock, self._flags = device, kernels, clock, flags
        self._stamps = Stamps(memory)

    def measure(
        self,
        program: DecodeProgram,
        before: CommandBuffer,
        position: int,
        settings: Settings,
        queued_gap_us: float,
        rounds: Rounds = ROUNDS,
    ) -> BubbleReport:
        """Medians of ``rounds`` of ABBA runs; ``before`` makes their state and is queued ahead of each."""
        with ExitStack() as cleanup:
            ops, barriers = self._flags.recordable(program.ops, program.barriers, settings.barriers)
            stamped = None if self._clock is None else self._stamps.twin(ops, self._kernels)
            variants: dict[str, Recordable] = {"clean": (ops, barriers)}
            if stamped is not None:
                variants["stamped"] = (stamped.ops, barriers)
            variants |= self._bounding(program, settings.barriers)
            recorded = {}
            for name, (ops, barriers) in variants.items():
                commands = recorded[name] = CommandBuffer(self._device)
                cleanup.callback(commands.close)
                read_back = stamped.read_back if name == "stamped" and stamped is not None else None
                commands.record_all(ops, barriers, read_back=read_back)
            accounts: list[dict[str, float]] = []

            def finished(name: str, elapsed_us: float) -> None:
                if name == "stamped" and stamped is not None and self._clock is not None:
                    spans_ns = stamped.spans_ns(self._clock)
                    kernels_us, bubbles_us, pieces_us = account(spans_ns, [op.piece for op in program.ops])
                    edges_us = elapsed_us - span_us(spans_ns)
                    accounts.append({"kernels": kernels_us, "bubbles": bubbles_us, "edges": edges_us, **pieces_us})

            times = interleaved(recorded, before, rounds, finished)
        median = {name: statistics.median(values) for name, values in times.items()}
        lower = [chain - empty for chain, empty in zip(times["empty_chain"], times["empty"], strict=True)]
        columns = (times["clean"], times["repeated"], times["filled"])
        upper = [clean - (repeated - filled) for clean, repeated, filled in zip(*columns, strict=True)]
        bounded = settings.barriers != FLAGS
        if not program.barrier_count:
            lower = [0.0]
        report = BubbleReport(
            position=position,
            passes=settings.passes,
            barriers=settings.barriers,
            dispatches=len(program.ops),
            barrier_count=program.barrier_count,
            clean_gpu_us=median["clean"],
            filled_gpu_us=median["filled"],
            repeated_gpu_us=median["repeated"],
            unordered_gpu_us=median["unordered"],
            null_gpu_us=median["null"],
            empty_chain_gpu_us=median["empty_chain"],
            empty_gpu_us=median["empty"],
            lower_us=max(statistics.median(lower), 0.0),
            upper_us=max(statistics.median(upper), 0.0) if bounded else None,
            lower_error_us=median_error(lower),
            upper_error_us=median_error(upper) if bounded else None,
            queued_gap_us=queued_gap_us,
        )
        if not accounts:
            return report
        counted = accounts[1:]  # the first is the warm-up's
        stamps = [longer - clean for longer, clean in zip(times["stamped"], times["clean"], strict=True)]
        inside = {name: statistics.median(found[name] for found in counted) for name in counted[0]}
        return replace(
            report,
            stamped_gpu_us=median["stamped"],
            kernels_us=inside["kernels"],
            bubbles_us=inside["bubbles"],
            bubbles_error_us=median_error([found["bubbles"] for found in counted]),
            edges_us=inside["edges"],
            pieces_us={piece: inside[piece] for piece in PIECES},
            stamps_us=statistics.median(stamps),
            stamps_error_us=median_error(stamps),
            instrument_cost_fraction=statistics.median(stamps) / median["clean"],
        )

    def run_once(self, program: DecodeProgram, before: CommandBuffer, settings: Settings) -> None:
        """Run the program and its stamped twin, if it has one; ``before`` makes their state."""
        clean, barriers = self._flags.recordable(program.ops, program.barriers, settings.barriers)
        stamped = None if self._clock is None else self._stamps.twin(clean, self._kernels)
        with closing(CommandBuffer(self._device)) as commands:
            for ops in (clean,) if stamped is None else (clean, stamped.ops):
                commands.record_all(ops, barriers)
                run_us(commands, before)

    def _bounding(self, program: DecodeProgram, policy: str) -> dict[str, Recordable]:
        ops, barriers = program.ops, program.barriers
        free = [False] * len(ops)

        def ordered(some: Sequence[Op], barriers: Sequence[bool]) -> Recordable:
            return self._flags.recordable(some, barriers, policy)

        waiting, none = ordered(ops, barriers)
        null = [op.with_kernel(self._kernels.null_twin(op.kernel), _RETURN_AT_ONCE + op.push) for op in waiting]
        empty = Op("empty", self._kernels.get("nothing"), (), (0,), (1, 1, 1))
        links = 1 + program.barrier_count
        processors = (os.cpu_count() or 1) if self._device.is_cpu else 1
        filling = [-(-processors // (op.groups[0] * op.groups[1])) for op in ops]
        return {
            "filled": ordered([_repeated(op, times) for op, times in zip(ops, filling, strict=True)], barriers),
            "repeated": ordered([_repeated(op, 1 + times) for op, times in zip(ops, filling, strict=True)], barriers),
            "unordered": (ops, free),
            "null": (null, none),
            "empty_chain": ordered([empty] * links, [False] + [True] * (links - 1)),
            "empty": ordered([empty], [False]),
        }


def _repeated(op: Op, times: int) -> Op:
    """The op with each of its workgroups so many times."""
    repeated = op.with_kernel(op.kernel, op.push)
    x, y, _ = op.groups
    repeated.groups = (x, y, times)
    return repeated
