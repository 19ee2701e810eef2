"""The resident kernel's test: that its workgroups run together and see what others wrote."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine import FUSION_PASSES, Engine, EngineError, Sampling
from engine.decode import persistent, walker
from engine.decode.tape import encode
from engine.decode.walker import Walker, check, most_workgroups
from engine.program.resident import CHECK, ResidentKernels
from engine.vulkan.pipelines import Resident
from tests.engine.gpu import Gpu
from tests.engine.tiny_runs import random_ids, take_mode
from tests.engine.walk import one_short
from tests.flipping import generate

GROUP = 64


def checking(gpu: Gpu, workgroups: int) -> tuple[ResidentKernels, Walker]:
    resident = Resident(GROUP, workgroups)
    kernels = ResidentKernels(gpu.kernels, resident)
    return kernels, Walker(gpu.kernels, kernels.joined([], stamped=False), resident, "resident")


def test_the_check_passes_where_two_workgroups_run_together() -> None:
    with Gpu(row_kernels=False) as gpu:
        assert check(gpu.device, gpu.memory, *checking(gpu, 2)) is None


def test_the_check_tells_workgroups_that_do_not_all_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walker, "_TEST_PATIENCE", {True: 1 << 12, False: 1 << 12})
    with Gpu(row_kernels=False) as gpu:
        kernels, built = checking(gpu, 2)
        monkeypatch.setattr(Walker, "op", one_short(Walker.op))
        assert (
            check(gpu.device, gpu.memory, kernels, built) == "its kernel's 2 workgroups do not all run at the same time"
        )
        with pytest.raises(EngineError, match="do not all run at the same time"):
            most_workgroups(gpu.device, gpu.memory, lambda count: checking(gpu, count + 1))


def test_how_many_workgroups_run_is_searched_once(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the driver does not tell: each try compiles a kernel, and a flip of fusion has to wait for it."""
    tried: list[int] = []

    def build(count: int) -> Any:
        tried.append(count)
        return None, None

    with monkeypatch.context() as patch:
        patch.setattr(walker, "check", lambda *_: None if tried[-1] <= 64 else "too many")
        device: Any = SimpleNamespace(multiprocessors=None, is_cpu=False)
        memory: Any = None
        assert most_workgroups(device, memory, build) == 64 and tried == [512, 256, 128, 64]
        tried.clear()
        assert most_workgroups(device, memory, build, most=64) == 64 and tried == [64]
    known: list[int | None] = []

    def counted(*args: Any) -> int:
        known.append(args[3])
        return most_workgroups(*args)

    monkeypatch.setattr(persistent, "most_workgroups", counted)
    with Engine.open(tiny_path, context=64, row_kernels=False) as engine:
        take_mode(engine, "persistent")
        for engine.fusion in (FUSION_PASSES, ()):
            generate(engine, random_ids(5), Sampling(temperature=0.0), 3)
    assert known[0] is None and known[1] is not None and len(known) == 2


def test_the_check_tells_data_that_does_not_cross(monkeypatch: pytest.MonkeyPatch) -> None:
    with Gpu(row_kernels=False) as gpu:
        monkeypatch.setattr(
            walker, "encode", lambda ops, barriers, numbers: encode(ops[:1] * len(ops), barriers, numbers)
        )
        problem = check(gpu.device, gpu.memory, *checking(gpu, 1))
        assert problem is None  # a lone workgroup has nobody to read from
        monkeypatch.setattr(
            walker, "encode", lambda ops, barriers, numbers: encode(ops[1:2] * len(ops), barriers, numbers)
        )
        problem = check(gpu.device, gpu.memory, *checking(gpu, 2))
        assert problem is not None and "do not see what the others wrote" in problem


def test_the_check_is_one_of_the_kernels() -> None:
    with Gpu(row_kernels=False) as gpu:
        kernels, built = checking(gpu, 1)
        assert built._joined.numbers[kernels.get(CHECK)] == 0
