"""Which kernels do what is no multiplication by a matrix: by the model's shape and the device."""

from __future__ import annotations

from typing import NamedTuple

from engine.models.config import Geometry
from engine.program.attend_division import attend_shape, most_heads, range_tokens
from engine.program.attend_matrices import attend_matrices
from engine.program.matrix_kernels import TO_FLOAT16_DEFINES, matrix_size, matrix_sizes
from engine.vulkan.pipelines import Defines, KernelSet, Resident

_NORM_LANES = 512


class PromptTiles(NamedTuple):
    """Queries a workgroup of prompt attention, and keys it takes at once; these are part of the arithmetic."""

    queries: int
    keys: int


class KernelChoice(NamedTuple):
    """A kernel by the name of its source, and the defines it is built with."""

    name: str
    defines: Defines


def rope_defines(g: Geometry) -> Defines:
    """What rope.glsl must know of the model."""
    return {"HEAD_DIM": g.head_size, "ROTATED": g.rotated, **({"ROPE_HALVES": 1} if g.rope_halves else {})}


def norm_defines(width: int, subgroup_size: int, cpu: bool) -> Defines:
    """Defines of norm.comp for vectors of ``width``; ``cpu``: on a software device."""
    if cpu:
        return {"LANES": subgroup_size}
    wanted = min(_NORM_LANES, -(-width // 4))  # a lane has four columns at a time
    return {"LANES": -(-wanted // subgroup_size) * subgroup_size, "BLOCKS": -(-width // 32)}


ALONE = "_alone"  # of a kind of attention: built for one query head a workgroup, which takes less shared memory
MATRICES = "_matrices"  # of a kind of attention, and of its merge: by cooperative matrices, where many tokens are seen
ONE_RANGE = "_one_range"  # of a kind of attention: as MATRICES, where no workgroup has more than one range
_ONE_HEAD: Defines = {"HEADS": 1}


def attend_defines(g: Geometry, subgroup_size: int, shared_bytes: int, resident: Resident | None = None) -> Defines:
    """Defines of attend_groups.comp, besides HEAD_DIM and MERGE; ``shared_bytes`` of a workgroup."""
    shape = attend_shape(g.head_size, subgroup_size)
    return {
        "LANES": shape.lanes, "LANES_A_TOKEN": shape.lanes_a_token, "SPLIT": shape.tokens,
        "HEADS": most_heads(g, subgroup_size, shared_bytes, resident),
    }  # fmt: skip


def prompt_tiles(head_size: int) -> PromptTiles:
    """The tiles of attend_prompt.comp: float32 queries and float16 keys of it in 40 KiB of shared memory."""
    return PromptTiles(32, 64) if head_size <= 128 else PromptTiles(16, 32)


def prompt_defines(head_size: int) -> Defines:
    """Defines of attend_prompt.comp."""
    tiles = prompt_tiles(head_size)
    return {"HEAD_DIM": head_size, "QUERIES": tiles.queries, "KEYS": tiles.keys}


def small_kernels(kernels: KernelSet, g: Geometry, prefill: bool) -> dict[str, KernelChoice]:
    """The kernels besides the matrix ones, by node kind, chosen for this device: those that the model needs."""
    device = kernels.device
    cpu = device.row_kernels
    size = device.subgroup_size
    head: Defines = {"HEAD_DIM": g.head_size}
    rope = rope_defines(g)
    attend: Defines = {**head, "SPLIT": range_tokens(g.head_size, size, cpu)}
    merge = attend
    attend_name = "attend_rows"
    if not cpu:
        attend_name = "attend_prompt" if prefill else "attend_groups"
        of_groups = attend_defines(g, size, device.shared_bytes, kernels.resident)
        attend = prompt_defines(g.head_size) if prefill else head | of_groups
    elif prefill:
        attend = attend | {"PREFILL": 1}
    norm = norm_defines(g.hidden, size, cpu)
    further = {
        "bias": KernelChoice("bias", {}),
        "head_norm": KernelChoice("head_norm", head),
        "norm_rope_store": KernelChoice("norm_rope_store", rope),
        "attend_gated": KernelChoice(attend_name, attend if prefill else {**attend, "MERGE": 1, "GATED": 1}),
        "norm_add": KernelChoice("norm", {**norm, "ADD": 1}),
        "gelu_mul": KernelChoice("gelu_mul", {}),
    }
    if prefill and matrix_size(kernels):
        further["to_float16"] = KernelChoice("to_float16", TO_FLOAT16_DEFINES)
    found = {
        "norm": KernelChoice("norm", norm),
        "add": KernelChoice("add", {}),
        "rope": KernelChoice("rope", rope),
        "store": KernelChoice("store_kv", head),
        "rope_store": KernelChoice("rope_store", rope),
        "attend": KernelChoice(attend_name, attend),
        "attend_merged": KernelChoice(attend_name, attend if prefill else {**attend, "MERGE": 1}),
        "merge": KernelChoice("attend_merge", merge),
        "silu_mul": KernelChoice("silu_mul", {}),
        **{kind: choice for kind, choice in further.items() if kind in (*g.further_kinds, "to_float16")},
    }
    if cpu or prefill:
        return found
    attends = [kind for kind, choice in found.items() if choice.name == attend_name]
    if int(attend.get("HEADS", 1)) > 1 and kernels.resident is None:
        found |= {kind + ALONE: KernelChoice(attend_name, {**found[kind].defines, **_ONE_HEAD}) for kind in attends}
    matrices = attend_matrices(g, matrix_sizes(kernels), size, device.shared_bytes)
    if matrices is not None:
        for kind in attends:
            defines = {**found[kind].defines, **matrices.defines()}
            del defines["LANES_A_TOKEN"]
            found[kind + MATRICES] = KernelChoice("attend_matrices", defines)
            if kernels.resident is None:
                found[kind + ONE_RANGE] = KernelChoice("attend_matrices", {**defines, "ONE_RANGE": 1})
            if kind + ALONE in found:  # of heads that share attend_groups.comp there are none then
                found[kind] = found.pop(kind + ALONE)
        found["merge" + MATRICES] = KernelChoice("attend_merge", {**head, "SPLIT": matrices.tokens})
    return found
