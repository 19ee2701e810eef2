"""The ways in which a device's row kernels can divide a matrix: what there is for a measurement to choose from."""

from __future__ import annotations

from typing import NamedTuple

from gguf.constants import GGMLQuantizationType

from engine.program.tuning import (
    MOST_PARTS,
    MOST_SUMS_BYTES,
    Division,
    Matrix,
    RowTuning,
    division,
    group_invocations,
    lanes,
    least_rows,
    share_out,
    sums_bytes,
    tensors,
)

_LANE_FACTORS = (1, 2, 4)  # subgroups that share a row
_ROWS = (1, 2, 4, 8)
_MOST_SUMS = 8  # rows of all tensors at once: 16 cost an H200 a fifth, through registers
_INVOCATIONS = (256, 512, 1024)  # a workgroup
_LEAST_TEAMS = 4  # each workgroup makes all of x ready
_TIMES = (1.0, 2.0)  # as many workgroups as an H200 holds at once


class RowDevice(NamedTuple):
    """What limits a device's choices."""

    subgroup_size: int
    most_invocations: int  # a workgroup
    shared_bytes: int  # a workgroup


class Choice(NamedTuple):
    """A way to multiply by a matrix."""

    matrix: Matrix
    lanes: int
    division: Division

    @property
    def kernel(self) -> tuple[Matrix, int, int, int, bool]:
        """What is compiled for it: choices that differ in the number of workgroups alone may share it."""
        divided = self.division
        return self.matrix, self.lanes, divided.rows, divided.teams, divided.is_one_turn(self.matrix.rows)


def usual(matrix: Matrix, device: RowDevice, team: int | None = None) -> Choice:
    """What is taken without a measurement, with ``team`` lanes a row if they are given."""
    if team is None:
        team = lanes(matrix.type, matrix.cols, device.subgroup_size)
    tuned = RowTuning(lanes={(matrix.type, matrix.cols): team})
    return Choice(matrix, team, division(matrix, device.subgroup_size, device.most_invocations, tuned=tuned))


def lane_choices(type: GGMLQuantizationType, cols: int, device: RowDevice) -> list[int]:
    """Lanes that a row of ``cols`` columns may have, the usual ones first.

    A power of two of whole subgroups, so that the persistent mode's workgroups are whole teams, and not so many that
    half of them would have no block.
    """
    size, blocks = device.subgroup_size, -(-cols // 32)
    most = group_invocations(size, device.most_invocations)
    found = [lanes(type, cols, size)]
    for factor in _LANE_FACTORS:
        team = factor * size
        if team not in found and team <= most and (factor == 1 or team < 2 * blocks):
            found.append(team)
    return found


def divisions(matrix: Matrix, team: int, device: RowDevice) -> list[Choice]:
    """The divisions to try of a matrix whose rows ``team`` lanes share, the usual one first."""
    first = usual(matrix, device, team)
    found = {first: None}
    for invocations in _INVOCATIONS:
        for at_once in _ROWS:
            for times in _TIMES:
                if _LEAST_TEAMS * team <= invocations:
                    divided = share_out(matrix.rows, at_once, team, invocations // team, times)
                    found[Choice(matrix, team, divided)] = None
    return [choice for choice in found if choice is first or is_possible(choice, device)]


def is_possible(choice: Choice, device: RowDevice) -> bool:
    """Whether the kernels can be built and run so on this device, as far as that is known beforehand."""
    (kernel, _, rows, _), team, (at_once, teams, workgroups) = choice
    size, invocations = device.subgroup_size, team * teams
    if min(team, at_once, teams, workgroups) < 1 or team % size or invocations > device.most_invocations:
        return False
    if at_once & (at_once - 1) or not least_rows(kernel) <= at_once <= min(_MOST_SUMS, size) // tensors(kernel):
        return False
    if workgroups > -(-rows // (at_once * teams)) or workgroups * teams > MOST_PARTS:
        return False
    return sums_bytes(kernel, at_once, invocations, size) <= MOST_SUMS_BYTES
