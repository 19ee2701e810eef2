"""Which build of decode attention a context gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Engine
from engine.decode.program import Settings
from engine.program.op import Attention
from tests.engine.tiny_model import write_tiny_llama

CONTEXT = 16_384


@pytest.mark.parametrize("fused", [True, False])
def test_a_head_a_workgroup_has_a_kernel_for_one(tmp_path: Path, fused: bool) -> None:
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, layers=1, heads=8, kv_heads=2, hidden=64, context=CONTEXT)
    with Engine.open(path, context=CONTEXT, row_kernels=False) as engine:
        runtime = engine._runtime
        passes = runtime.offered_passes if fused else ()
        heads = {}
        for position in (0, 511, 512, CONTEXT - 1):
            program = runtime.builder.build(
                runtime.builder.bucket(position), Settings("reuse", passes, "needed"), runtime._slot
            )
            (op,) = [op for op in program.ops if isinstance(op, Attention)]
            heads[position] = op.kernel.defines["HEADS"]
            assert op.groups[1] * op.kernel.defines["HEADS"] >= 8  # it has room for what it is told
        assert heads[0] == heads[511] == 1
        assert heads[CONTEXT - 1] > 1
