"""Tunings that tests set, and as much of an engine as a RowTuner asks for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from gguf.constants import GGMLQuantizationType as T

from engine import row_tuner
from engine.decode.program import DecodeProgram
from engine.profile import remembered_tuning
from engine.program.operands import Weight
from engine.program.tuning import Division, Matrix, RowTuning, lanes
from engine.progress import no_progress
from engine.row_tuner import RowTuner

GPU = RowTuning({(T.Q4_0, 4096): 32}, {Matrix("head_groups", T.Q6_K, 32000, 4096): Division(4, 4, 132)})


def other_tuning(subgroup_size: int) -> RowTuning:
    """For the model of one_layer_path. Usual are a subgroup for 64 columns, for 384 as many lanes as blocks of 32."""
    one, two, four = (subgroup_size * factor for factor in (1, 2, 4))
    return RowTuning(
        {(T.Q4_1, 64): two, (T.Q4_1, 384): one if lanes(T.Q4_1, 384, one) > one else two, (T.Q8_0, 64): four},
        {
            Matrix("qkv_groups", T.Q4_1, 128, 64): Division(4, 2, 5),
            Matrix("gate_up_groups", T.Q4_1, 384, 64): Division(2, 3, 64),
            Matrix("matvec_groups", T.Q4_1, 64, 384): Division(8, 4, 2),
        },
    )


def kernels(driver: str = "1.0", is_cpu: bool = False, row_kernels: bool = False) -> Any:
    """As much of a device's kernels as a RowTuner asks for."""
    info = SimpleNamespace(name="device", driver=driver)
    limits = {"subgroup_size": 32, "most_invocations": 1024, "shared_bytes": 48 << 10}
    device = SimpleNamespace(info=info, is_cpu=is_cpu, row_kernels=row_kernels, **limits)
    return SimpleNamespace(device=device, base={}, resident=None, tuning=None)


def keep(tuner: RowTuner, tuning: RowTuning) -> None:
    remembered_tuning.remember(tuner._key, tuning)


def measure(tuner: RowTuner, best: RowTuning, monkeypatch: pytest.MonkeyPatch, weights: Sequence[Weight] = ()) -> None:
    """A measurement by which this is best."""
    monkeypatch.setattr(row_tuner, "tune", lambda *_: best)
    monkeypatch.setattr(row_tuner, "RowTrials", lambda *_: nullcontext())
    unused: Any = None
    program = DecodeProgram([], [], 0)
    tuner.measure(program, program, unused, unused, weights, no_progress)
