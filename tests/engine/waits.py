"""What waits in memory must hold in any program: a software device, which runs dispatches in order, would not tell."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from itertools import accumulate

from engine import FUSION_PASSES, Engine
from engine.decode.program import Settings
from engine.program.op import Op
from engine.program.schedule import Range


def assert_waits(engine: Engine) -> None:
    """Unfused, with each fusion pass alone and with all, each kernel of a token waits for all that it depends on."""
    runtime = engine._runtime
    counted = 0
    for passes in ((), *((name,) for name in FUSION_PASSES), FUSION_PASSES):
        program = runtime.builder.build(engine.context, Settings("reuse", passes, "flags"), runtime._slot)
        ops, barriers = runtime._resources.flags.recordable(program.ops, program.barriers, "flags")
        assert len(ops) == len(program.ops) and not any(barriers)
        arrived = [0, *accumulate(op.groups[0] * op.groups[1] for op in ops)]
        for index, op in enumerate(ops):
            (target,) = struct.unpack_from("<I", op.push, 8)
            assert target in arrived[: index + 1]  # or it would wait for itself
            needed = [arrived[before + 1] for before in range(index) if _depends(op, ops[before])]
            assert target >= max(needed, default=0), (op.name, passes)
            counted += len(needed)
        assert arrived[-1] - 1 + struct.unpack_from("<I", ops[-1].push, 12)[0] == 1 << 32  # zero again
    assert counted


def _depends(op: Op, earlier: Op) -> bool:
    written, touched = _ranges(earlier, earlier.kernel.writes), _ranges(op, (*op.kernel.reads, *op.kernel.writes))
    return _overlap(written, touched) or _overlap(_ranges(earlier, earlier.kernel.reads), _ranges(op, op.kernel.writes))


def _ranges(op: Op, bindings: Iterable[int]) -> list[Range]:
    return [op.buffers[binding].range for binding in bindings if not op.buffers[binding].constant]


def _overlap(some: list[Range], others: list[Range]) -> bool:
    return any(one[0] < other[1] and other[0] < one[1] for one in some for other in others)
