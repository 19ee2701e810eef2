"""Which kernel multiplies by a matrix: by what is wanted, the matrix, and the device.

The one place that chooses between the kernels of software devices and of GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from gguf.constants import GGMLQuantizationType

from engine.program.matrix_tiles import X_PARTS, matrix_tiles
from engine.program.tuning import UNTUNED, Division, Matrix, division, lanes, stage_blocks
from engine.vulkan.cooperative_matrix import MatrixSize
from engine.vulkan.pipelines import Defines, KernelSet
from engine.weights.formats import FLOATS, Layout

Use = Literal[
    "matvec", "matvec_add", "matvec_bias", "norm_matvec", "norm_matvec_bias",
    "gate_up", "norm_gate_up", "gate_up_gelu", "norm_gate_up_gelu",
    "qkv", "norm_qkv", "qkv_bias", "norm_qkv_bias", "qkv_store", "norm_qkv_store",
    "head", "norm_head", "matmul", "matmul_add", "matmul_bias", "embed", "embed_decode",
]  # fmt: skip
Groups = tuple[int, int, int]

MOST_GROUPS = 65535  # a dimension, all that the specification guarantees
_TOKENS_A_TILE = {True: 16, False: 64}  # by "software device"
_ROWS_A_TILE = {True: 8, False: 64}
TO_FLOAT16_DEFINES: Defines = {"LANES": 256, "X_PARTS": X_PARTS}
ROW_DEFINES = ("COLS", "LANES", "TEAMS", "ROWS", "STAGE_BLOCKS", "ONE_TURN")  # as row_defines names them
_OPERATIONS = ("matvec", "gate_up", "qkv", "head", "matmul", "embed")
_ENDINGS = {"add": "ADD", "bias": "BIAS", "gelu": "GELU"}  # of uses, and the define that says so to a kernel
# what can be done part by part: a result's rows are written, or one row of a table is read
SPLITTABLE = frozenset[str](("embed", "embed_decode", "matvec", "norm_matvec", "head", "norm_head"))


def layout(kernels: KernelSet) -> Layout:
    """The layout of planes that these kernels read."""
    return "cpu" if "CPU_DEVICE" in kernels.base else "gpu"


def matrix_size(kernels: KernelSet) -> MatrixSize | None:
    """The cooperative matrices that ``matmul`` uses; None where it takes x as it is."""
    return kernels.device.matrix_size if _multiplies_matrices(kernels) else None


def matrix_sizes(kernels: KernelSet) -> tuple[MatrixSize, ...]:
    """The cooperative matrices that kernels may use."""
    return kernels.device.matrix_sizes if _multiplies_matrices(kernels) else ()


def required_kernels(
    kernels: KernelSet, uses: Iterable[tuple[Use, GGMLQuantizationType, int, int]], rope: Defines | None = None
) -> list[tuple[str, Defines, bool]]:
    """What ``Kernels.prepare`` must build for these (use, type, rows, cols), each once.

    ``rope`` is what ``qkv`` is called with. Uses that this kind of device has no kernel for are left out.
    """
    cpu = layout(kernels) == "cpu"
    found: dict[tuple[Any, ...], tuple[str, Defines, bool]] = {}
    for use in uses:
        operation = operation_of(use[0])
        if cpu and (operation in ("qkv", "head") or use[0].startswith("norm_")):
            continue
        for few in (False, True) if operation == "matmul" and matrix_size(kernels) else (False,):
            name, defines, _ = choose(kernels, *use, few)
            if operation == "qkv":
                defines |= turning(rope or {}, use[0])
            found[(name, *sorted(defines.items()))] = (name, defines, False)
    return list(found.values())


def choose(
    kernels: KernelSet, use: Use, type: GGMLQuantizationType, rows: int, cols: int, few: bool = False
) -> tuple[str, Defines, Groups]:
    """Kernel name, defines and workgroup counts; for matmul the second count is tokens a tile.

    ``few``: of a product by cooperative matrices with at most FEW_TOKENS.
    """
    cpu = layout(kernels) == "cpu"
    operation = operation_of(use)
    defines: Defines = {"WEIGHT_TYPE": f"WEIGHT_{type.name}"}
    if operation == "embed":
        if use == "embed_decode":
            defines["DECODE"] = 1
        return "embed", defines, (-(-cols // 256), 1, 1)
    if cpu and type in FLOATS and cols % 32:
        defines["TAIL"] = 1
    if ending := _ENDINGS.get(use.rpartition("_")[-1]):
        defines[ending] = 1
    size = matrix_size(kernels)
    if operation == "matmul" and size:
        device = kernels.device
        tiles = matrix_tiles(rows, few, size, device.subgroup_size, device.shared_bytes)
        defines |= tiles.defines(size)
        return "matmul_matrices", defines, (-(-rows // tiles.rows), tiles.tokens, 1)
    if operation == "matmul":
        tile = _TOKENS_A_TILE[cpu]
        if cpu:
            defines["TOKENS"] = tile
        return "matmul_rows" if cpu else "matmul_tiled", defines, (-(-rows // _ROWS_A_TILE[cpu]), tile, 1)
    if cpu:
        if operation == "gate_up":
            return "gate_up_rows", defines, _spread(-(-rows // 8))
        defines["OCTETS"] = 2
        return "matvec_rows", defines, _spread(-(-rows // 16))
    if use.startswith("norm_"):
        defines["NORM"] = 1
    name = f"{operation}_groups"
    device = kernels.device
    width, tuned = device.subgroup_size, kernels.tuning or UNTUNED
    matrix = Matrix(name, type, rows, cols)
    divided = division(matrix, width, device.most_invocations, kernels.resident, tuned)
    defines |= row_defines(type, rows, cols, lanes(type, cols, width, tuned), divided, device.shared_bytes)
    return name, defines, (divided.workgroups, 1, 1)


def row_defines(
    type: GGMLQuantizationType, rows: int, cols: int, team: int, divided: Division, shared_bytes: int
) -> Defines:
    """What row_products.glsl must know: ``team`` are the lanes that share a row."""
    stage = stage_blocks(type, cols, team, shared_bytes)
    defines: Defines = {
        "COLS": cols, "LANES": team, "TEAMS": divided.teams, "ROWS": divided.rows, "STAGE_BLOCKS": stage,
    }  # fmt: skip
    if divided.is_one_turn(rows):
        defines["ONE_TURN"] = 1
    return defines


def operation_of(use: Use) -> str:
    """A use without what comes before or after the multiplication: "matvec" of "norm_matvec_bias"."""
    return next(name for name in _OPERATIONS if use.removeprefix("norm_").startswith(name))


def turning(rope: Defines, use: Use) -> Defines:
    """rope.glsl's defines for a use of "qkv": of a layer without RoPE nothing turns."""
    return {**rope, "ROTATED": 0} if use.endswith("_store") else rope


def _multiplies_matrices(kernels: KernelSet) -> bool:
    return layout(kernels) != "cpu" and "NO_COOPERATIVE_MATRIX" not in kernels.base


def _spread(groups: int) -> Groups:
    """Workgroups over two dimensions where one does not hold them; kernels guard the surplus."""
    if groups <= MOST_GROUPS:
        return groups, 1, 1
    height = -(-groups // MOST_GROUPS)
    return -(-groups // height), height, 1
