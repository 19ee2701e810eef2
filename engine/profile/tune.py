"""Which division of rows is best on this device for a model's matrices, by trials of whole tokens.

Only a token's time tells: under barriers ``flags`` a kernel begins while the one before still runs, and what is
fastest by itself may leave the others less room. Lanes are part of a row's arithmetic, so all matrices of one type and
as many columns share them. One change is tried after another, each on top of what was found better before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

from gguf.constants import GGMLQuantizationType

from engine.profile.row_trials import Changes, Workload
from engine.program.row_choices import Choice, RowDevice, divisions, lane_choices, usual
from engine.program.tuning import Matrix, RowTuning
from engine.progress import Bar

_FASTER = 0.998  # of a token's time, where few are timed: a smaller difference is noise
_HARDLY_SLOWER = 1.003  # where many are, each few times
_SHORTLIST = 3
_FINALS = 2  # what other programs do to one, they hardly do to both
_FOR_LANES = 0.3  # of the kernels that may be built
# of the progress bar for building kernels, and for timing tokens: guessed, and only how evenly it moves hangs on it
_LANES_SHARES, _DIVISIONS_SHARES, _FINALS_SHARE = (0.15, 0.1), (0.35, 0.35), 0.05


class Limits(NamedTuple):
    """What a measurement may take: kernels, and seconds in which those of lanes, then the others, begin to be built."""

    kernels: int = 100
    build_s: float = 8.0


class Trials(Protocol):
    """See engine.profile.row_trials."""

    def kernels(self, choices: Iterable[Choice]) -> int:
        """How many would be built for these choices."""

    def build(self, choices: Iterable[Choice], seconds: float) -> None:
        """Build what these choices need, as far as there is time."""

    def token_us(self, tokens: Sequence[Changes]) -> list[float]:
        """A token's time with each of these changes; inf where it cannot be had."""


def tune(works: Sequence[Workload], device: RowDevice, trials: Trials, limits: Limits, bar: Bar) -> RowTuning:
    """Choose lanes, then divisions.

    ``works``: those with the most bytes first. Where they need more kernels than there may be, the last stay as usual.
    ``bar`` shows how far it is, but for its end; of each kernel that they build ``trials`` tell it.
    """
    matrices = [work.matrix for work in works]
    by_lanes = _first(_other_lanes(matrices, device), int(limits.kernels * _FOR_LANES), trials)
    allowed = limits.kernels - trials.kernels(_choices(by_lanes))
    best = _built_and_tried(by_lanes, {}, trials, limits, bar, _LANES_SHARES)
    by_division = _first(_other_divisions(matrices, best, device), allowed, trials)
    best = _built_and_tried(by_division, best, trials, limits, bar, _DIVISIONS_SHARES)
    bar.part(_FINALS_SHARE, _FINALS)
    if best:
        finals = []
        for _ in range(_FINALS):
            finals.append(trials.token_us([{}, best]))
            bar.step()
        usual_us, best_us = map(min, zip(*finals, strict=True))
        best = best if best_us < usual_us else {}
    return _tuning(best, device)


def _built_and_tried(
    each: Sequence[Sequence[Changes]],
    best: Changes,
    trials: Trials,
    limits: Limits,
    bar: Bar,
    shares: tuple[float, float],
) -> Changes:
    """``best`` with what is found better of each list of alternatives.

    ``shares`` of the bar: of building their kernels, and of timing tokens.
    """
    choices = _choices(each)
    bar.part(shares[0], trials.kernels(choices))
    trials.build(choices, limits.build_s)
    bar.part(shares[1], 2 * len(each))
    for alternatives in each:
        best = _better(best, alternatives, trials, bar)
    return best


def _other_lanes(matrices: Iterable[Matrix], device: RowDevice) -> Iterator[list[Changes]]:
    """For each type and width all such matrices with other lanes."""
    groups: dict[tuple[GGMLQuantizationType, int], list[Matrix]] = {}
    for matrix in matrices:
        groups.setdefault((matrix.type, matrix.cols), []).append(matrix)
    for group, members in groups.items():
        _, *others = lane_choices(*group, device)
        yield [{matrix: usual(matrix, device, team) for matrix in members} for team in others]


def _other_divisions(matrices: Iterable[Matrix], best: Changes, device: RowDevice) -> Iterator[list[Changes]]:
    """For each matrix its other divisions, with the lanes that it has in ``best``."""
    for matrix in matrices:
        known = best.get(matrix) or usual(matrix, device)
        yield [{matrix: choice} for choice in divisions(matrix, known.lanes, device) if choice != known]


def _first(each: Iterable[list[Changes]], kernels: int, trials: Trials) -> list[list[Changes]]:
    """The alternatives of as many from the first on as need no more ``kernels`` together."""
    found: list[list[Changes]] = []
    for alternatives in each:
        if trials.kernels(_choices([*found, alternatives])) > kernels:
            break
        if alternatives:
            found.append(alternatives)
    return found


def _choices(alternatives: Iterable[Iterable[Changes]]) -> list[Choice]:
    return [choice for changes in chain.from_iterable(alternatives) for choice in changes.values()]


def _better(current: Changes, alternatives: Sequence[Changes], trials: Trials, bar: Bar) -> Changes:
    """``current`` with the best of these on top, if a token is faster by it.

    All are tried, and then those that came out best again by themselves: fewer tokens are timed more often. These are
    two steps of the bar.
    """
    tokens: list[Changes] = [{**current, **changes} for changes in alternatives]
    current_us, *times_us = trials.token_us([current, *tokens])
    bar.step()
    ahead = sorted(range(len(tokens)), key=times_us.__getitem__)[:_SHORTLIST]
    shortlist = [tokens[index] for index in ahead if times_us[index] < _HARDLY_SLOWER * current_us]
    if not shortlist:
        bar.step()
        return current
    current_us, *times_us = trials.token_us([current, *shortlist])
    bar.step()
    best_us = min(times_us)
    return shortlist[times_us.index(best_us)] if best_us < _FASTER * current_us else current


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
