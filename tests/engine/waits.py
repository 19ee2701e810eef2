"""What waits in memory must hold in any program: a software device, which runs dispatches in order, would not tell."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from engine import FUSION_PASSES, Engine
from engine.decode.program import Settings
from engine.program.op import Op
from engine.program.schedule import Range
from engine.vulkan.pipelines import Kernel
from engine.vulkan.shaders import compile_glsl, expand
from tests.engine.spirv import LOAD, STORE, Access, accesses

_BUFFER = re.compile(r"^\s*BUFFER\(\d+,\s*(\w+),\s*(\w+),", re.MULTILINE)
_Base = tuple[tuple[str, str | int], ...]  # defines of all kernels
_OWN = {(LOAD, "FlagControl"), (STORE, "FlagReport")}  # an address that stays, and what only the host reads


def assert_waits(engine: Engine) -> None:
    """Unfused, with each fusion pass alone and with all, each kernel of a token waits for all that it depends on.

    And it loads that from where others wrote it: what it says is fixed, nobody writes before it is done.
    """
    runtime = engine._runtime
    base, counted = tuple(runtime._kernels.base.items()), 0
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
            written = _ranges(op, op.kernel.writes)
            assert len(written) == len(op.kernel.writes), f"{op.name} writes what is constant"
            for reader, other in enumerate(ops):  # which may load early what is fixed, and from any cache
                if _overlap(written, _fixed(other, base)):
                    assert reader < index and target >= arrived[reader + 1], (other.name, op.name, passes)
        for kernel in {op.kernel for op in ops}:
            _check_caches(kernel, base)
        assert arrived[-1] - 1 + struct.unpack_from("<I", ops[-1].push, 12)[0] == 1 << 32  # zero again
    assert counted


class _Memory(NamedTuple):
    """Of a kernel: its buffers' blocks in order, those it says are fixed, and its loads and stores."""

    blocks: tuple[str, ...]
    fixed: frozenset[str]
    accesses: tuple[Access, ...]


@cache
def _memory(kernel: Kernel, base: _Base) -> _Memory:
    defines = {**dict(base), **kernel.defines}
    source = expand(kernel.name, tuple((key, str(value)) for key, value in sorted(defines.items())))
    buffers = _BUFFER.findall(source)
    fixed = frozenset(block for access, block in buffers if access == "FIXED")
    return _Memory(tuple(block for _, block in buffers), fixed, tuple(accesses(compile_glsl(source, kernel.label))))


def _check_caches(kernel: Kernel, base: _Base) -> None:
    """What is not fixed reaches all of the device: no fence behind a wait empties a workgroup's caches."""
    memory = _memory(kernel, base)
    kept = {(access.opcode, access.block) for access in memory.accesses if not access.reaches_device}
    assert kept <= {(LOAD, block) for block in memory.fixed} | _OWN, kernel.label


def _fixed(waiting: Op, base: _Base) -> list[Range]:
    """What is loaded as fixed; a kernel may be bound to anything where its build loads nothing."""
    memory = _memory(waiting.kernel, base)
    loaded = memory.fixed & {access.block for access in memory.accesses}
    return _ranges(waiting, (index for index, block in enumerate(memory.blocks) if block in loaded))


def _depends(op: Op, earlier: Op) -> bool:
    written, touched = _ranges(earlier, earlier.kernel.writes), _ranges(op, (*op.kernel.reads, *op.kernel.writes))
    return _overlap(written, touched) or _overlap(_ranges(earlier, earlier.kernel.reads), _ranges(op, op.kernel.writes))


def _ranges(op: Op, bindings: Iterable[int]) -> list[Range]:
    return [op.buffers[binding].range for binding in bindings if not op.buffers[binding].constant]


def _overlap(some: list[Range], others: list[Range]) -> bool:
    return any(one[0] < other[1] and other[0] < one[1] for one in some for other in others)
