"""Which division of rows is best on this device for a model's matrices, by trials of whole tokens.

Only a token's time tells: under barriers ``flags`` a kernel begins while the one before still runs, and what is
fastest by itself may leave the others less room. Lanes are part of a row's arithmetic, so all matrices of one type and
as many columns share them. One change is tried after another, each on top of what was found better before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from gguf.constants import GGMLQuantizationType

from engine.profile.row_trials import Changes, Workload
from engine.program.row_choices import Choice, RowDevice, divisions, lane_choices, usual
from engine.program.tuning import Matrix, RowTuning

_FASTER = 0.998  # of a token's time, twice: a smaller difference is noise
_FOR_LANES = 0.3  # of the kernels that may be built
_Group = tuple[GGMLQuantizationType, int]  # type, cols


class Limits(NamedTuple):
    """What a measurement may take: kernels, and seconds in which they begin to be built."""

    kernels: int = 100
    build_s: float = 8.0


class Trials(Protocol):
    """See engine.profile.row_trials."""

    def build(self, choices: Iterable[Choice], seconds: float) -> None:
        """Build what these choices need, as far as there is time."""

    def token_us(self, tokens: Sequence[Changes]) -> list[float]:
        """A token's time with each of these changes; inf where it cannot be had."""


def tune(works: Sequence[Workload], device: RowDevice, trials: Trials, limits: Limits) -> RowTuning:
    """Choose lanes, then divisions.

    ``works``: those with the most bytes first. Where they need more kernels than there may be, the last stay as usual.
    """
    groups: dict[_Group, list[Matrix]] = {}
    for work in works:
        groups.setdefault((work.matrix.type, work.matrix.cols), []).append(work.matrix)
    by_lanes = _other_lanes(groups, device, int(limits.kernels * _FOR_LANES))
    allowed = limits.kernels - len({choice.kernel for choice in _choices(by_lanes)})
    by_division = _other_divisions([work.matrix for work in works], {}, device, allowed)
    trials.build((*_choices(by_lanes), *_choices(by_division)), limits.build_s)
    best: Changes = {}
    for alternatives in by_lanes:
        best = _better(best, alternatives, trials)
    if best:
        by_division = _other_divisions([work.matrix for work in works], best, device, allowed)
        trials.build(_choices(by_division), limits.build_s)
    for alternatives in by_division:
        best = _better(best, alternatives, trials)
    if best:
        usual_us, best_us = trials.token_us([{}, best])
        best = best if best_us < usual_us else {}
    return _tuning(best, device)


def _other_lanes(groups: Mapping[_Group, Sequence[Matrix]], device: RowDevice, allowed: int) -> list[list[Changes]]:
    """For each group all its matrices with other lanes, as long as they are not too many kernels."""
    found: list[list[Changes]] = []
    for group, matrices in groups.items():
        _, *others = lane_choices(*group, device)
        allowed -= len(others) * len(matrices)
        if others and allowed >= 0:
            found.append([{matrix: usual(matrix, device, team) for matrix in matrices} for team in others])
    return found


def _other_divisions(matrices: Sequence[Matrix], best: Changes, device: RowDevice, allowed: int) -> list[list[Changes]]:
    """For each matrix its other divisions, with the lanes that it has in ``best``."""
    found: list[list[Changes]] = []
    for matrix in matrices:
        known = best.get(matrix) or usual(matrix, device)
        choices = [choice for choice in divisions(matrix, known.lanes, device) if choice != known]
        allowed -= len({choice.kernel for choice in choices})
        if choices and allowed >= 0:
            found.append([{matrix: choice} for choice in choices])
    return found


def _choices(alternatives: Iterable[Iterable[Changes]]) -> list[Choice]:
    return [choice for changes in chain.from_iterable(alternatives) for choice in changes.values()]


def _better(current: Changes, alternatives: Sequence[Changes], trials: Trials) -> Changes:
    """``current`` with the best of these on top, if a token is faster by it in both of two trials."""
    tokens = [current, *({**current, **changes} for changes in alternatives)]
    times_us = trials.token_us(tokens)
    best = min(range(len(tokens)), key=times_us.__getitem__)
    if times_us[best] >= _FASTER * times_us[0]:
        return current
    current_us, best_us = trials.token_us([current, tokens[best]])
    return tokens[best] if best_us < _FASTER * current_us else current


def _tuning(changes: Changes, device: RowDevice) -> RowTuning:
    lanes = {
        (matrix.type, matrix.cols): choice.lanes
        for matrix, choice in changes.items()
        if choice.lanes != usual(matrix, device).lanes
    }
    divided = {
        matrix: choice.division for matrix, choice in changes.items() if choice != usual(matrix, device, choice.lanes)
    }
    return RowTuning(lanes, divided)
