"""Which build of decode attention a context gets."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import Engine
from engine.decode.program import Settings
from engine.program.op import Attention
from tests.engine.tiny_model import write_tiny_llama

CONTEXT = 16_384


@pytest.mark.parametrize("matrices", [True, False])
@pytest.mark.parametrize("fused", [True, False])
def test_a_head_a_workgroup_has_a_kernel_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fused: bool, matrices: bool
) -> None:
    """Elsewhere heads share one, with matrices where the device has them."""
    if not matrices:
        monkeypatch.setattr("engine.program.small_kernels.attend_matrices", lambda *args: None)
    path = tmp_path / "model.gguf"
    write_tiny_llama(path, layers=1, heads=8, kv_heads=2, hidden=128, context=CONTEXT)
    with Engine.open(path, context=CONTEXT, row_kernels=False) as engine:
        runtime = engine._runtime
        passes = runtime.offered_passes if fused else ()
        for position in (0, 511, 512, CONTEXT - 1):
            program = runtime.builder.build(
                runtime.builder.bucket(position), Settings("reuse", passes, "needed"), runtime._slot
            )
            (at,) = [index for index, op in enumerate(program.ops) if isinstance(op, Attention)]
            kernel, groups = program.ops[at].kernel, program.ops[at].groups
            alone, by_matrices = position < 512, matrices and runtime._device.matrix_sizes
            assert kernel.name == ("attend_matrices" if by_matrices and not alone else "attend_groups")
            assert kernel.defines["HEADS"] == (1 if alone else 4)
            assert groups[1] * kernel.defines["HEADS"] == 8
            if not fused:
                joining = program.ops[at + 1].kernel
                assert (joining.name, joining.defines["SPLIT"]) == ("attend_merge", kernel.defines["SPLIT"])
