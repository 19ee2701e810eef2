"""Which division of rows is best on this device for a model's matrices, by trial.

Lanes are part of a row's arithmetic, so all matrices of one type and as many columns share them, and are judged
together. What is left as usual needs no trial: another choice must be clearly faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import inf, log2
from typing import NamedTuple

from gguf.constants import GGMLQuantizationType

from engine.profile.row_trials import Workload
from engine.program.row_choices import Choice, RowDevice, divisions, lane_choices, usual
from engine.program.tuning import Division, Matrix, RowTuning

_CLEARLY = 0.97  # a difference below 3% is noise
_FOR_LANES = 0.6  # of the kernels that may be built
_INVOCATIONS = 512  # a workgroup: with one of these a multiprocessor an H200 makes x ready only once
_Group = tuple[GGMLQuantizationType, int]  # type, cols
Times = Mapping[Choice, float]
# times choices, without those that it could not; us an op
Trial = Callable[[Sequence[Choice]], Times]


class Tuned(NamedTuple):
    """What was found best, and ``times``, us an op, of all that was tried, as last timed."""

    tuning: RowTuning
    times: Times


def tune(works: Sequence[Workload], device: RowDevice, trial: Trial, most_kernels: int) -> Tuned:
    """Choose by at most two calls of ``trial``, which may have to build ``most_kernels`` in all.

    First the lanes, each with up to three divisions; then, with the lanes that were best, the other divisions,
    beside the usual ones once more. ``works``: those with the most bytes first; what there are no kernels left for
    stays as usual.
    """
    groups = _grouped(works)
    first = _lane_trials(groups, device, int(most_kernels * _FOR_LANES))
    times = dict(trial(first)) if first else {}
    teams = {group: _best_team(members, device, times) for group, members in groups.items()}
    second = _division_trials(works, teams, device, times, most_kernels - len({choice.kernel for choice in first}))
    again = trial(second)
    tuning = _decide(groups, teams, device, again)
    return Tuned(tuning, {**times, **again})


def _grouped(works: Sequence[Workload]) -> dict[_Group, list[Workload]]:
    groups: dict[_Group, list[Workload]] = {}
    for work in works:
        groups.setdefault((work.matrix.type, work.matrix.cols), []).append(work)
    return groups


def _lane_trials(groups: Mapping[_Group, list[Workload]], device: RowDevice, most_kernels: int) -> list[Choice]:
    """All lanes of each group, those with the most bytes first, as long as they are not too many kernels."""
    found: list[list[Choice]] = []
    by_bytes = sorted(groups.items(), key=lambda item: sum(work.bytes for work in item[1]), reverse=True)
    for group, members in by_bytes:
        teams = lane_choices(*group, device)
        wanted = [_few(work.matrix, team, device) for team in teams for work in members]
        for some in (wanted, [few[:1] for few in wanted]):
            if len(teams) > 1 and sum(map(len, (*found, *some))) <= most_kernels:
                found += some
                break
    # the usual ones first: the time to build may end before the kernels do
    return [few[0] for few in found] + [choice for few in found for choice in few[1:]]


def _few(matrix: Matrix, team: int, device: RowDevice) -> list[Choice]:
    """The usual division, one with twice as many rows at once or else half, and one with _INVOCATIONS a workgroup."""
    first, *others = divisions(matrix, team, device)
    rows, teams, _ = first.division
    by_rows: dict[int, list[Choice]] = {}
    for choice in others:
        by_rows.setdefault(choice.division.rows, []).append(choice)

    def nearest(choices: list[Choice], wanted: int) -> list[Choice]:
        ordered = sorted(choices, key=lambda choice: abs(log2(choice.division.teams / wanted)))
        return ordered[:1]

    found = [first, *nearest(by_rows.get(rows * 2) or by_rows.get(rows // 2, []), teams)]
    wanted = max(1, _INVOCATIONS // team)
    return found if wanted == teams else found + nearest(by_rows.get(rows, []), wanted)


def _best_team(members: Sequence[Workload], device: RowDevice, times: Times) -> int:
    """The lanes with which a group's matrices take least; the usual ones unless others are clearly better."""
    first = usual(members[0].matrix, device).lanes
    costs: dict[int, float] = {}
    for team in {choice.lanes for choice in times if choice.matrix == members[0].matrix}:
        costs[team] = sum(len(work.ops) * _least(work.matrix, team, times) for work in members)
    best = min(costs, key=lambda team: costs[team], default=first)
    return best if costs and costs[best] < _CLEARLY * costs.get(first, inf) else first


def _least(matrix: Matrix, team: int, times: Times) -> float:
    return min((times[choice] for choice in _tried(matrix, team, times)), default=inf)


def _tried(matrix: Matrix, team: int, times: Times) -> list[Choice]:
    return [choice for choice in times if choice.matrix == matrix and choice.lanes == team]


def _division_trials(
    works: Sequence[Workload], teams: Mapping[_Group, int], device: RowDevice, times: Times, most_kernels: int
) -> list[Choice]:
    """What a decision needs, then divisions of each matrix in turn, the nearest to the best one so far first."""
    found: dict[Choice, None] = {}
    further: list[Iterator[list[Choice]]] = []
    for work in works:
        matrix = work.matrix
        team = teams[matrix.type, matrix.cols]
        known = usual(matrix, device)
        best = {known.lanes: known, team: usual(matrix, device, team)}
        found |= dict.fromkeys(best.values())
        for lanes in best:
            best[lanes] = min(_tried(matrix, lanes, times), key=lambda choice: times[choice], default=best[lanes])
        found |= dict.fromkeys(best.values())
        further.append(_by_kernel(divisions(matrix, team, device), best[team]))
    kernels = {choice.kernel for choice in (*found, *times)}
    built = len(kernels)
    while further:
        for source in tuple(further):
            more = next(source, None)
            if more is None:
                further.remove(source)
                continue
            kernels.add(more[0].kernel)
            if len(kernels) - built > most_kernels:
                return list(found)
            found |= dict.fromkeys(more)
    return list(found)


def _by_kernel(choices: Sequence[Choice], best: Choice) -> Iterator[list[Choice]]:
    """Choices that share a kernel together, the nearest to ``best`` first."""
    kernels: dict[tuple[object, ...], list[Choice]] = {}
    for choice in choices:
        kernels.setdefault(choice.kernel, []).append(choice)

    def distance(same: list[Choice]) -> float:
        (rows, teams, _), (best_rows, best_teams, _) = same[0].division, best.division
        return abs(log2(rows / best_rows)) + abs(log2(teams / best_teams))

    return iter(sorted(kernels.values(), key=distance))


def _decide(
    groups: Mapping[_Group, list[Workload]], teams: Mapping[_Group, int], device: RowDevice, times: Times
) -> RowTuning:
    """By the last times alone: the first ones, which named the lanes, would otherwise count for them twice."""
    lanes: dict[_Group, int] = {}
    found: dict[Matrix, Division] = {}
    for group, members in groups.items():
        first, team = usual(members[0].matrix, device).lanes, teams[group]
        if team != first:
            costs = [
                sum(len(work.ops) * _least(work.matrix, each, times) for work in members) for each in (team, first)
            ]
            if costs[0] < _CLEARLY * costs[1] < inf:
                lanes[group] = team
            else:
                team = first
        for work in members:
            tried = _tried(work.matrix, team, times)
            known = usual(work.matrix, device, team)
            best = min(tried, key=lambda choice: times[choice], default=known)
            if times.get(best, inf) < _CLEARLY * times.get(known, -inf):
                found[work.matrix] = best.division
    return RowTuning(lanes, found)
