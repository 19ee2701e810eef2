"""Weights in device memory: what the file holds, and stacks in one piece."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from gguf.constants import GGMLQuantizationType

from engine.errors import EngineError
from engine.models import llama
from engine.program.matrix_kernels import Use
from engine.vulkan.unbacked import UnbackedMemory
from engine.weights import load as load_module
from engine.weights.formats import K_TYPES, LAYOUTS, Layout
from engine.weights.gguf import GGUFFile
from engine.weights.gguf_header import TensorInfo
from engine.weights.load import Rows, TensorSpec, allocate_weights, check_tensors, load
from engine.weights.repack import repack
from tests.engine.gpu import Gpu
from tests.engine.weight_data import TYPES, fresh_random, random_raw


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("chunk_bytes", [1 << 20, 1000])  # whole tensors, and pieces of 24 rows of most
def test_every_weight_is_the_files(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Layout, chunk_bytes: int
) -> None:
    monkeypatch.setattr(load_module, "_CHUNK_BYTES", chunk_bytes)
    counted: list[tuple[int, int]] = []
    with GGUFFile.open(tiny_path) as file, Gpu() as gpu:
        specs = llama.tensors(llama.geometry("tiny", file.metadata, file.tensors), file.tensors)
        weights = load(file, specs, gpu.memory, layout, lambda done, total: counted.append((done, total)))
        for name, weight in weights.matrices.items():
            planes = repack(file.data(name), weight.type, weight.rows, weight.cols, layout)
            for held, expected in zip((weight.quants, weight.scales), planes, strict=True):
                np.testing.assert_array_equal(gpu.read(held, np.uint8), expected)
        for name, vector in weights.vectors.items():
            np.testing.assert_array_equal(gpu.read(vector), file.data(name).view(np.float32))
        assert weights.matrices.keys() | weights.vectors.keys() == {spec.name for spec in specs if not spec.host}
    assert counted == sorted(counted)
    assert counted[-1][0] == counted[-1][1] == sum(file.tensors[spec.name].size_bytes for spec in specs)


def test_a_stack_lies_in_one_piece(tiny_path: Path) -> None:
    memory = UnbackedMemory(None)  # type: ignore[arg-type] - it asks nothing of the device
    with GGUFFile.open(tiny_path) as file:
        specs = llama.tensors(llama.geometry("tiny", file.metadata, file.tensors), file.tensors)
        weights = allocate_weights(file.tensors, specs, memory, "gpu")
    assert weights.stacks
    for stack in weights.stacks.values():
        first, *others = stack.members
        assert first.quants.address == stack.combined.quants.address
        assert stack.combined.rows == sum(member.rows for member in stack.members)
        for before, after in zip((first, *others), others, strict=False):
            assert after.quants.address == before.quants.range[1]
            assert after.scales.address == before.scales.range[1]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_of_a_tensor(tiny_path: Path, layout: Layout) -> None:
    uses: tuple[Use, ...] = ("matvec",)
    specs = [
        TensorSpec("even", (32, 64), uses, source="blk.0.attn_q.weight", rows=Rows(16, 0, 8)),
        TensorSpec("odd", (32, 64), uses, source="blk.0.attn_q.weight", rows=Rows(16, 8, 8)),
        TensorSpec("blk.0.attn_norm.weight", (64,)),
    ]
    counted: list[tuple[int, int]] = []
    with GGUFFile.open(tiny_path) as file, Gpu() as gpu:
        check_tensors(file, specs)
        weights = load(file, specs, gpu.memory, layout, lambda done, total: counted.append((done, total)))
        info = file.tensors["blk.0.attn_q.weight"]
        rows = file.data(info.name).reshape(4, 16, -1)
        for name, first in (("even", 0), ("odd", 8)):
            planes = repack(rows[:, first : first + 8].reshape(-1), info.type, 32, 64, layout)
            weight = weights.matrices[name]
            for held, expected in zip((weight.quants, weight.scales), planes, strict=True):
                np.testing.assert_array_equal(gpu.read(held, np.uint8), expected)
        assert counted[-1] == (info.size_bytes + 64 * 4,) * 2
        with pytest.raises(EngineError, match=r"attn_q.weight is \(64, 64\), the header says \(48, 64\)"):
            check_tensors(file, [TensorSpec("even", (24, 64), uses, source=info.name, rows=Rows(16, 0, 8))])


class _OneMatrix:
    """A source of one tensor, with what ``load`` asks of one."""

    def __init__(self, info: TensorInfo, data: npt.NDArray[np.uint8]) -> None:
        self.tensors = {info.name: info}
        self._data = data.reshape(info.shape[0], -1)

    def rows(self, name: str, first: int, count: int) -> npt.NDArray[np.uint8]:
        return self._data[first : first + count].reshape(-1).copy()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("type", TYPES)
def test_pieces_of_a_matrix_are_the_whole(
    shared_gpu: Gpu, monkeypatch: pytest.MonkeyPatch, type: GGMLQuantizationType, layout: Layout
) -> None:
    """An odd number of rows, several pieces, and one block a row, so that planes of bytes end anywhere."""
    monkeypatch.setattr(load_module, "_CHUNK_BYTES", 1)
    rows, cols = 37, 256 if type in K_TYPES else 32
    data = random_raw(fresh_random(), type, rows, cols)
    info = TensorInfo("m", (rows, cols), type, 0, data.size)
    specs = [TensorSpec("m", (rows, cols), ("matvec",))]
    source = _OneMatrix(info, data)
    weights = load(source, specs, shared_gpu.memory, layout, lambda done, total: None)  # type: ignore[arg-type]
    held = (weights.matrices["m"].quants, weights.matrices["m"].scales)
    for plane, expected in zip(held, repack(data, type, rows, cols, layout), strict=True):
        np.testing.assert_array_equal(shared_gpu.read(plane, np.uint8)[: expected.size], expected)


class _MadeUp:
    """A source of one large Q8_0 matrix whose rows are made when they are asked for."""

    def __init__(self, rows: int, cols: int) -> None:
        self.row_bytes = cols // 32 * 34
        self.tensors = {"m": TensorInfo("m", (rows, cols), GGMLQuantizationType.Q8_0, 0, rows * self.row_bytes)}

    def rows(self, name: str, first: int, count: int) -> npt.NDArray[np.uint8]:
        return np.full(count * self.row_bytes, first % 251, np.uint8)


def test_the_host_holds_pieces_not_tensors(shared_gpu: Gpu) -> None:
    rows, cols = 16384, 4096
    source = _MadeUp(rows, cols)
    size = source.tensors["m"].size_bytes
    tracemalloc.start()
    try:
        specs = [TensorSpec("m", (rows, cols), ("matvec",))]
        load(source, specs, shared_gpu.memory, "gpu", lambda done, total: None)  # type: ignore[arg-type]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < size / 2, f"{peak / 1e6:.1f} MB for a tensor of {size / 1e6:.1f}"


@pytest.fixture(scope="module")
def shared_gpu() -> Iterator[Gpu]:
    with Gpu() as gpu:
        yield gpu
