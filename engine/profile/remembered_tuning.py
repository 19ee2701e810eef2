"""Tunings on disk: a measured one is kept for the next start on the same device, by the same kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gguf.constants import GGMLQuantizationType

from engine import disk_cache
from engine.program.row_choices import Choice, RowDevice, is_possible
from engine.program.tuning import ROW_KERNELS, Division, Matrix, RowTuning, lanes

VERSION = 5  # of the method: what another one chose is measured anew


def remembered(key: str, device: RowDevice) -> RowTuning | None:
    """The tuning kept for ``key``; None where there is none, or what stands there cannot be one of this device."""
    found = disk_cache.load_json(_file()).get(key)
    try:
        tuning = _from_json(found)
    except (TypeError, ValueError, KeyError, OverflowError):
        return None
    return tuning if _fits(tuning, device) else None


def remember(key: str, tuning: RowTuning) -> None:
    """Keep a tuning for the next start."""
    disk_cache.store_json(_file(), {**disk_cache.load_json(_file()), key: _to_json(tuning)})


def _file() -> Path:
    return disk_cache.cache_file("rows.json")


def _to_json(tuning: RowTuning) -> dict[str, Any]:
    return {
        "lanes": [[type.name, cols, team] for (type, cols), team in tuning.lanes.items()],
        "divisions": [[*_matrix_to_json(matrix), *divided] for matrix, divided in tuning.divisions.items()],
        "near_only": [_matrix_to_json(matrix) for matrix in tuning.divisions if matrix in tuning.near_only],
        "far_position": tuning.far_position,
    }


def _matrix_to_json(matrix: Matrix) -> list[str | int]:
    return [matrix.kernel, matrix.type.name, matrix.rows, matrix.cols]


def _from_json(found: Any) -> RowTuning:
    shared = {(_type(name), int(cols)): int(team) for name, cols, team in found["lanes"]}
    divisions = {_matrix(*entry[:4]): Division(*map(int, entry[4:])) for entry in found["divisions"]}
    near_only = frozenset(_matrix(*matrix) for matrix in found["near_only"])
    return RowTuning(shared, divisions, near_only, int(found["far_position"]))


def _matrix(kernel: Any, type: Any, rows: Any, cols: Any) -> Matrix:
    return Matrix(str(kernel), _type(type), int(rows), int(cols))


def _type(name: Any) -> GGMLQuantizationType:
    return GGMLQuantizationType[name]


def _fits(tuning: RowTuning, device: RowDevice) -> bool:
    """Whether kernels can be built by it: a file may be damaged, or edited."""
    size = device.subgroup_size

    def team(matrix: Matrix) -> int:
        return lanes(matrix.type, matrix.cols, size, tuning)

    shared: Mapping[tuple[GGMLQuantizationType, int], int] = tuning.lanes
    if any(
        cols < 1 or each < size or each % size or each > device.most_invocations for (_, cols), each in shared.items()
    ):
        return False
    choices = (Choice(matrix, team(matrix), divided) for matrix, divided in tuning.divisions.items())
    return all(choice.matrix.kernel in ROW_KERNELS and is_possible(choice, device) for choice in choices)
