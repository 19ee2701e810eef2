"""The bubble meter: how long no kernel of a decode program runs, by the kernels' own clock and between two bounds.

Three programs besides the clean one and its stamped twin give the bounds, which need no clock in the kernels:

    empty        one workgroup of the null twin: what any submission takes between its two timestamps
    null chain   of the null twin one workgroup for each barrier
    doubled      the clean program, every dispatch with each of its workgroups twice

Below: a barrier makes the GPU drain and start again, in the null chain as in the token, so the bubbles are at least
null chain - empty. (The whole null twin is no bound: launching its many workgroups, and its dispatches that have no
barrier before them, is time that the token spends while other kernels run.)
Above: a dispatch with twice the workgroups does its work again, within the same launch and behind the same barrier. It
takes longer by at most the time the kernel took: workgroups that run again need no longer than they did at first. So
kernels run for at least doubled - clean, and bubbles are at most the rest of the token, clean - (doubled - clean).

Two more programs are there to be seen: `null`, the whole null twin, and `unordered`, the clean program without its
barriers. clean - unordered is no bound: a software device runs dispatches one after another with or without barriers,
and leaves gaps between them either way.
"""

from __future__ import annotations

import statistics
from contextlib import ExitStack, closing
from dataclasses import replace

from engine.decode.program import DecodeProgram, Settings
from engine.profile.bubble_report import BubbleReport
from engine.profile.interleave import Rounds, interleaved, median_error, run_us
from engine.profile.kernel_clock import KernelClock
from engine.profile.stamps import Stamps, account, span_us
from engine.program.op import PIECES, Op
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory
from engine.vulkan.pipelines import Kernels

_RETURN_AT_ONCE = bytes(8)  # the null twin's stamp address
ROUNDS = Rounds(4, 16, 2.0, warm_up_seconds=0.2)
FEW_ROUNDS = Rounds(2, 4, 0.2)  # between two tokens of a reply, whose clocks are up


class BubbleMeter:
    """Measures programs; nothing may be in flight. ``clock`` None: bounds only."""

    def __init__(self, device: Device, memory: Memory, kernels: Kernels, clock: KernelClock | None) -> None:
        self._device, self._kernels, self._clock = device, kernels, clock
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
            stamped = None if self._clock is None else self._stamps.twin(program.ops, self._kernels)
            variants = {"clean": (program.ops, program.barriers)}
            if stamped is not None:
                variants["stamped"] = (stamped.ops, program.barriers)
                again = self._stamps.twin(program.ops, self._kernels, twice=True)
                variants["stamped_twice"] = (again.ops, program.barriers)
            variants |= self._bounding(program)
            recorded = {}
            for name, (ops, barriers) in variants.items():
                commands = recorded[name] = CommandBuffer(self._device)
                cleanup.callback(commands.close)
                commands.record_all(ops, barriers)
            accounts: list[dict[str, float]] = []

            def finished(name: str, elapsed_us: float) -> None:
                if name == "stamped" and stamped is not None and self._clock is not None:
                    spans_ns = stamped.spans_ns(self._clock)
                    kernels_us, bubbles_us, pieces_us = account(spans_ns, [op.piece for op in program.ops])
                    edges_us = elapsed_us - span_us(spans_ns)
                    accounts.append({"kernels": kernels_us, "bubbles": bubbles_us, "edges": edges_us, **pieces_us})

            times = interleaved(recorded, before, rounds, finished)
        median = {name: statistics.median(values) for name, values in times.items()}
        lower = [chain - empty for chain, empty in zip(times["null_chain"], times["empty"], strict=True)]
        upper = [clean - (doubled - clean) for clean, doubled in zip(times["clean"], times["doubled"], strict=True)]
        if not program.barrier_count:
            lower = [0.0]
        report = BubbleReport(
            position=position,
            passes=settings.passes,
            barriers=settings.barriers,
            dispatches=len(program.ops),
            barrier_count=program.barrier_count,
            clean_gpu_us=median["clean"],
            doubled_gpu_us=median["doubled"],
            unordered_gpu_us=median["unordered"],
            null_gpu_us=median["null"],
            null_chain_gpu_us=median["null_chain"],
            empty_gpu_us=median["empty"],
            lower_us=max(statistics.median(lower), 0.0),
            upper_us=max(statistics.median(upper), 0.0),
            lower_error_us=median_error(lower),
            upper_error_us=median_error(upper),
            queued_gap_us=queued_gap_us,
        )
        if not accounts:
            return report
        counted = accounts[1:]  # the first is the warm-up's
        terms = [found["kernels"] + found["bubbles"] + found["edges"] for found in counted]
        stamps = [twice - once for twice, once in zip(times["stamped_twice"], times["stamped"], strict=True)]
        columns = (times["clean"], terms, stamps)
        unexplained = [clean - (sum_us - stamps_us) for clean, sum_us, stamps_us in zip(*columns, strict=True)]
        costs = [longer - clean for longer, clean in zip(times["stamped"], times["clean"], strict=True)]
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
            unexplained_us=statistics.median(unexplained),
            unexplained_error_us=median_error(unexplained),
            instrument_cost_fraction=statistics.median(costs) / median["clean"],
        )

    def run_once(self, program: DecodeProgram, before: CommandBuffer) -> None:
        """Run the program and its stamped twin, if it has one; ``before`` makes their state."""
        stamped = None if self._clock is None else self._stamps.twin(program.ops, self._kernels)
        with closing(CommandBuffer(self._device)) as commands:
            for ops in (program.ops,) if stamped is None else (program.ops, stamped.ops):
                commands.record_all(ops, program.barriers)
                run_us(commands, before)

    def _bounding(self, program: DecodeProgram) -> dict[str, tuple[list[Op], list[bool]]]:
        ops, barriers = program.ops, program.barriers
        free = [False] * len(ops)
        null = [op.with_kernel(self._kernels.null_twin(op.kernel), _RETURN_AT_ONCE + op.push) for op in ops]
        chain = [_one_group(op) for op, hazard in zip(null, [True, *barriers[1:]], strict=True) if hazard]
        return {
            "doubled": ([_doubled(op) for op in ops], barriers),
            "unordered": (ops, free),
            "null": (null, barriers),
            "null_chain": (chain, [False] + [True] * (len(chain) - 1)),
            "empty": (chain[:1], [False]),
        }


def _doubled(op: Op) -> Op:
    twice = op.with_kernel(op.kernel, op.push)
    x, y, _ = op.groups
    twice.groups = (x, y, 2)
    return twice


def _one_group(op: Op) -> Op:
    single = op.with_kernel(op.kernel, op.push)
    single.groups = (1, 1, 1)
    return single
