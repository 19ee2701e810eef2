"""How prompts' products divide over workgroups with cooperative matrices; docs/performance.md has the times.

None of it changes a bit of a result, but for X_PARTS.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.vulkan.cooperative_matrix import MatrixSize
from engine.vulkan.pipelines import Defines

X_PARTS = 2  # float16 numbers that stand for one of x: 22 bits
_ROWS_OF_LARGE_TILES = 2048  # fewer are too few tiles for all of a GPU
_LARGE_SHARED_BYTES = 48 << 10
_LARGE_INVOCATIONS, _SMALL_INVOCATIONS = 256, 128


class MatrixTiles(NamedTuple):
    """Rows and tokens a workgroup, and its subgroups each way."""

    rows: int
    tokens: int
    down: int
    across: int

    def defines(self, size: MatrixSize) -> Defines:
        """What matmul_matrices.comp must know."""
        return {
            "MATRIX_M": size.m, "MATRIX_N": size.n, "MATRIX_K": size.k, "ROWS": self.rows, "TOKENS": self.tokens,
            "SUBGROUPS_DOWN": self.down, "SUBGROUPS_ACROSS": self.across, "X_PARTS": X_PARTS,
        }  # fmt: skip


def matrix_tiles(rows: int, size: MatrixSize, subgroup_size: int, shared_bytes: int) -> MatrixTiles:
    """The tiles of a matrix of so many rows, whatever the number of tokens."""
    if size.m * size.n <= 64:  # a software device: small kernels, which compile quickly
        return MatrixTiles(2 * size.m, 2 * size.n, 2, 2)
    if rows >= _ROWS_OF_LARGE_TILES and shared_bytes >= _LARGE_SHARED_BYTES:
        return MatrixTiles(128, 128, 2, _LARGE_INVOCATIONS // 2 // subgroup_size)
    if rows > 32 or size.m > 16 or size.n > 32:
        return MatrixTiles(64, 64, 2, _SMALL_INVOCATIONS // 2 // subgroup_size)
    return MatrixTiles(32, 32, 2, 1) if subgroup_size <= 32 else MatrixTiles(32, 32, 1, 1)
