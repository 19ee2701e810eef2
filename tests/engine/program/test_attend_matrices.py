"""Which cooperative matrices decode attention takes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from engine.models.config import Geometry
from engine.program.attend_division import LEAST_RANGE_TOKENS
from engine.program.attend_matrices import attend_matrices
from engine.vulkan.cooperative_matrix import MatrixSize

H200 = [MatrixSize(16, 16, 16), MatrixSize(16, 8, 16), MatrixSize(16, 8, 8)]
RADV = [MatrixSize(16, 16, 16)]
KIBIBYTE = 1 << 10


def geometry(heads: int, kv_heads: int, head_size: int) -> Geometry:
    return cast(Geometry, SimpleNamespace(heads=heads, kv_heads=kv_heads, head_size=head_size))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size", "sharing"),
    [(32, 8, 128, 4), (9, 3, 64, 3), (16, 8, 128, 2), (28, 4, 128, 4), (40, 8, 80, 3), (64, 8, 96, 4)],
)
def test_as_few_columns_as_will_do_on_an_h200(heads: int, kv_heads: int, head_size: int, sharing: int) -> None:
    found = attend_matrices(geometry(heads, kv_heads, head_size), H200, 32, 48 * KIBIBYTE)
    assert found == (MatrixSize(16, 8, 16), 512, sharing, heads // kv_heads, 256)


def test_all_heads_of_a_key_where_matrices_are_wide() -> None:
    assert attend_matrices(geometry(28, 4, 128), RADV, 32, 64 * KIBIBYTE) == (RADV[0], 512, 7, 7, 256)
    assert attend_matrices(geometry(32, 8, 128), RADV, 64, 64 * KIBIBYTE) == (RADV[0], 512, 4, 4, 128)
    assert attend_matrices(geometry(28, 4, 128), RADV, 32, 48 * KIBIBYTE) is None  # too little shared memory


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size", "sizes", "subgroup_size"),
    [
        *((32, 32, 128, H200, 32), (16, 4, 256, H200, 32), (24, 4, 24, H200, 32), (32, 8, 128, [], 32)),
        *((32, 8, 128, [MatrixSize(8, 8, 8)], 4), (32, 8, 128, [MatrixSize(16, 2, 16)], 32)),
    ],
)
def test_not_where_heads_share_nothing_or_nothing_fits(heads, kv_heads, head_size, sizes, subgroup_size) -> None:
    assert attend_matrices(geometry(heads, kv_heads, head_size), sizes, subgroup_size, 64 * KIBIBYTE) is None


@pytest.mark.parametrize("size", [(8, 8, 8), (16, 16, 16), (16, 8, 16), (16, 8, 8), (8, 16, 16), (32, 32, 16)], ids=str)
@pytest.mark.parametrize("subgroup_size", [8, 16, 32, 64, 128])
@pytest.mark.parametrize("head_size", [16, 64, 80, 96, 128])
@pytest.mark.parametrize("shared", [2, 3, 4, 5, 8])
def test_the_kernel_can_have_what_is_chosen(size, subgroup_size, head_size, shared) -> None:
    """As attend_matrices.comp divides: nothing is left over, and what lies over the keys is no larger."""
    found = attend_matrices(geometry(shared, 1, head_size), [MatrixSize(*size)], subgroup_size, 64 * KIBIBYTE)
    if found is None:
        return
    m, n, k = size
    subgroups, blocks = found.lanes // subgroup_size, 64 // m
    assert subgroup_size % m == 0 and subgroup_size % 8 == 0 and m % (subgroup_size // 8) == 0
    assert found.tokens == subgroups * m >= LEAST_RANGE_TOKENS
    assert subgroups % blocks == 0 and subgroups % 4 == 0 and found.tokens % (subgroups // blocks * k) == 0
    assert head_size % k == head_size % m == 64 % k == 64 % m == 0
    assert 2 * found.heads <= n and found.heads <= subgroups and -(-shared // found.heads) * found.heads >= shared
    tile = found.tokens * 9
    assert m * n // 4 <= m * 9 and subgroups // blocks * n * (-(-head_size // 64) * 16 + 1) <= tile
    assert 16 * (tile + n * (head_size // 8 + 1 + found.tokens // 8 + 1)) < 64 * KIBIBYTE
