"""Which cooperative matrices a device multiplies (VK_KHR_cooperative_matrix)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from engine.vulkan.api import NULL, check, ffi, instance_function
from engine.vulkan.instance import Instance

_NEEDED = ("cooperativeMatrix", "shaderFloat16", "vulkanMemoryModel")
_FLOAT16, _FLOAT32, _SUBGROUP = 0, 1, 3  # of VkComponentTypeKHR and VkScopeKHR
_COLUMNS_A_TILE, _UNIT_COLUMNS, _MOST_ROWS = 32, 8, 16  # of shaders/matmul_matrices.comp


class MatrixSize(NamedTuple):
    """A product of (m, k) by (k, n) float16 matrices, summed in (m, n) float32, by one subgroup."""

    m: int
    n: int
    k: int


def matrix_sizes(instance: Instance, physical: Any, features: set[str]) -> tuple[MatrixSize, ...]:
    """The sizes that a device has."""
    if not features.issuperset(_NEEDED):
        return ()
    enumerate_ = instance_function(instance.handle, "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR")
    if enumerate_ is None:
        return ()
    count = ffi.new("uint32_t*")
    check(enumerate_(physical, count, NULL), "asking for cooperative matrices")
    items = ffi.new("VkCooperativeMatrixPropertiesKHR[]", count[0])
    for item in items:
        item.sType = 1000506001
    check(enumerate_(physical, count, items), "asking for cooperative matrices")
    wanted = (_FLOAT16, _FLOAT16, _FLOAT32, _FLOAT32, _SUBGROUP)
    return tuple(size for size, kind in map(_read, items[0 : count[0]]) if kind == wanted)


def largest_fitting(sizes: Iterable[MatrixSize]) -> MatrixSize | None:
    """Of ``sizes`` the one with the most products that divides the kernels' tiles; None where none does."""
    fitting = [
        size
        for size in sizes
        if max(size.m, size.n) <= _MOST_ROWS and not size.k % _UNIT_COLUMNS and not _COLUMNS_A_TILE % size.k
    ]
    return max(fitting, key=lambda size: (size.m * size.n * size.k, size), default=None)


def _read(item: Any) -> tuple[MatrixSize, tuple[int, ...]]:
    """A VkCooperativeMatrixPropertiesKHR: its size, and types and scope."""
    kind = (item.AType, item.BType, item.CType, item.ResultType, item.scope)
    return MatrixSize(item.MSize, item.NSize, item.KSize), kind
