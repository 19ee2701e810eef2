"""How prompts' products divide over workgroups with cooperative matrices; docs/performance.md has the times.

None of it changes a bit of a result, but for X_PARTS.
"""

from __future__ import annotations

from typing import NamedTuple

from engine.vulkan.cooperative_matrix import MatrixSize
from engine.vulkan.pipelines import Defines

X_PARTS = 2  # float16 numbers that stand for one of x: 22 bits
FEW_TOKENS = 64  # a tile of so many is enough
_ROWS_OF_LARGE_TILES = 2048  # fewer are too few tiles for all of a GPU
_LARGE_SHARED_BYTES = 48 << 10
_MOST_SUBGROUPS = 8  # each has a matrix of results in shared memory


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


def matrix_tiles(rows: int, few: bool, size: MatrixSize, subgroup_size: int, shared_bytes: int) -> MatrixTiles:
    """The tiles of a matrix of so many rows; ``few``: with at most FEW_TOKENS."""
    if size.m * size.n <= 64:  # a software device: small kernels, which compile quickly
        side = max(2 * size.m, subgroup_size)
        return _divided(side, side, 2 * side, size, subgroup_size)
    if not few and rows >= _ROWS_OF_LARGE_TILES and shared_bytes >= _LARGE_SHARED_BYTES:
        return _divided(128, 128, 256, size, subgroup_size)
    if rows > 32:
        return _divided(64, 64, 128, size, subgroup_size)
    return _divided(32, 32, 64, size, subgroup_size)


def _divided(rows: int, tokens: int, invocations: int, size: MatrixSize, subgroup_size: int) -> MatrixTiles:
    """Over so many invocations, or as many as have a whole matrix a subgroup."""
    subgroups = min(max(1, invocations // subgroup_size), _MOST_SUBGROUPS)
    down = min(2, subgroups)
    return MatrixTiles(rows, tokens, down, min(subgroups // down, tokens // size.n))
