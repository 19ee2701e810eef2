"""Which cooperative matrices kernels take."""

from __future__ import annotations

import pytest

from engine.program.matrix_tiles import matrix_tiles
from engine.vulkan.cooperative_matrix import MatrixSize, largest_fitting
from tests.engine.gpu import Gpu

SHARED_BYTES = 48 << 10


def test_the_largest_size_that_divides_a_tile() -> None:
    listed = [MatrixSize(16, 8, 8), MatrixSize(16, 16, 16), MatrixSize(16, 8, 16)]
    assert largest_fitting(listed) == (16, 16, 16)
    assert largest_fitting([MatrixSize(8, 8, 8)]) == (8, 8, 8)
    assert largest_fitting([MatrixSize(64, 16, 16), MatrixSize(16, 16, 64), MatrixSize(16, 16, 4)]) is None
    assert largest_fitting([]) is None


def test_no_size_without_the_features() -> None:
    with Gpu() as gpu:
        if gpu.device.matrix_size is not None:
            assert gpu.device.features >= {"cooperativeMatrix", "shaderFloat16", "vulkanMemoryModel"}


@pytest.mark.parametrize("size", [(8, 8, 8), (16, 16, 16), (16, 8, 16), (8, 16, 16)], ids=str)
@pytest.mark.parametrize("subgroup_size", [8, 16, 32, 64])
@pytest.mark.parametrize("rows", [1, 32, 33, 64, 576, 2048, 151936])
@pytest.mark.parametrize("few", [False, True])
def test_tiles_divide_among_invocations(size: tuple[int, int, int], subgroup_size: int, rows: int, few: bool) -> None:
    """As matmul_matrices.comp takes them apart: whole matrices a subgroup, whole units of a tile an invocation."""
    m, n, _ = size
    tiles = matrix_tiles(rows, few, MatrixSize(*size), subgroup_size, SHARED_BYTES)
    defines = tiles.defines(MatrixSize(*size))
    invocations = tiles.down * tiles.across * subgroup_size
    assert tiles.rows % (tiles.down * m) == 0 and tiles.tokens % (tiles.across * n) == 0
    assert 2 * tiles.rows % invocations == 0 and 4 * int(defines["X_PARTS"]) * tiles.tokens % invocations == 0
    assert m * n % subgroup_size == 0
    tiles_bytes = 16 * (2 * tiles.rows * 5 + tiles.tokens * (4 * int(defines["X_PARTS"]) + 1))
    assert tiles_bytes + 4 * tiles.down * tiles.across * m * n <= SHARED_BYTES
