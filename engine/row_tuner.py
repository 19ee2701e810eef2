"""How the rows of a model's matrices are divided on a device: as usual, or as a measurement found best there."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engine.decode.program import DecodeProgram
from engine.errors import EngineError
from engine.profile.choose import choice_key
from engine.profile.remembered_tuning import VERSION, remember, remembered
from engine.profile.row_trials import LeastUs, Record, RowTrials, within, workloads
from engine.profile.tune import Limits, tune
from engine.program.operands import Weight
from engine.program.row_choices import RowDevice
from engine.program.tuning import HEAD_KERNEL, Division, Matrix, RowTuning
from engine.progress import Bar, Progress
from engine.vulkan.pipelines import Kernels, KernelSet, Retuned

LIMITS = Limits()
_FASTER = 0.999  # of a token's time: a smaller difference is noise


@dataclass(frozen=True, slots=True)
class Tuning:
    """How rows are divided; what is not named is as usual.

    ``lanes``: invocations that share a row, by "type x columns". ``divisions``: rows at once, teams a workgroup and
    workgroups, by "kernel type rows x columns". ``near_only``: which of them hold up to 512 tokens of context alone.
    """

    origin: Literal["usual", "measured", "remembered"]
    lanes: Mapping[str, int] = field(default_factory=dict)
    divisions: Mapping[str, Division] = field(default_factory=dict)
    near_only: tuple[str, ...] = ()


def _unless_off() -> bool:
    """Whether ZINCCHAT_TUNING lets a device be measured; it takes one word, so that no other is passed over."""
    word = os.environ.get("ZINCCHAT_TUNING", "")
    if word not in ("", "off"):
        raise EngineError(f"ZINCCHAT_TUNING is {word!r}: set it to off to divide matrices as usual, or unset it")
    return not word


class RowTuner:
    """Sets the ``tuning`` of a device's kernels, and tells it in ``used``.

    ``far``: the kernels for long contexts, if their rows are to be divided otherwise.
    """

    def __init__(self, kernels: Kernels, wanted: bool | None, facts: Sequence[object]) -> None:
        """Take what is remembered for the device and ``facts`` of the model; where ``is_due``, ``measure`` follows.
        Where the context is long, so does ``measure_far``: it may be longer than at an earlier start.

        ``wanted`` None measures on GPUs unless ZINCCHAT_TUNING is "off", and not where a software device runs a GPU's
        kernels. Row kernels divide nothing. Raises EngineError for any other word in that variable.
        """
        if wanted is None:
            wanted = _unless_off() and not kernels.device.is_cpu
        device = self._device = kernels.device
        self._kernels = kernels
        self._limits = RowDevice(device.subgroup_size, device.most_invocations, device.shared_bytes)
        self._key = choice_key("rows", VERSION, device.info.name, device.info.driver, *self._limits, *facts)
        self.is_due = wanted and not device.row_kernels
        self.used = Tuning("usual")
        self.far: KernelSet | None = None
        if self.is_due and (found := remembered(self._key, self._limits)) is not None:
            self._take(found, "remembered")

    def measure(
        self,
        program: DecodeProgram,
        timed: DecodeProgram,
        record: Record,
        least_us: LeastUs,
        weights: Sequence[Weight],
        progress: Progress,
    ) -> None:
        """Try, keep and use what makes a token of ``program`` fastest; nothing may be in flight.

        ``timed`` is that token, or a shorter one of the same ops with all matrices. The program is divided as usual;
        ``record`` says how it is recorded, ``least_us`` times such recordings. It takes some seconds. ``weights`` are
        the program's; they forget what they had planned.
        """
        bar = Bar(progress, "tuning")
        works = within(workloads(program.ops, weights), timed.ops)
        with RowTrials(self._kernels, timed, works, record, least_us, bar.step) as trials:
            tuning = tune(works, self._limits, trials, LIMITS, bar)
        self._take(tuning, "measured", weights)
        bar.end()
        remember(self._key, tuning)

    def measure_far(
        self,
        position: int,
        least_us: Callable[[Sequence[KernelSet]], list[float]],
        weights: Sequence[Weight],
        progress: Progress,
    ) -> None:
        """Where many tokens are seen, divide as usual again what makes a token there faster; keep and use that.

        Attention takes all multiprocessors there, and what stands beside it may do better with fewer. ``least_us``
        times the token at ``position`` with the rows of all matrices but the LM head divided as each of several sets
        of kernels says; nothing may be in flight. What was measured there, or further, is not measured again.
        ``weights`` are the program's; they forget what they had planned.
        """
        tuned = self._kernels.tuning
        if tuned is None or position <= tuned.far_position:
            return
        singles = [frozenset((matrix,)) for matrix in tuned.divisions if matrix.kernel != HEAD_KERNEL]
        if not singles:
            return

        def times_us(choices: Iterable[frozenset[Matrix]]) -> dict[frozenset[Matrix], float]:
            distinct = list(dict.fromkeys(choices))
            sets = [Retuned(self._kernels, replace(tuned, near_only=choice).far()) for choice in distinct]
            return dict(zip(distinct, least_us(sets), strict=True))

        progress("tuning", 0, 2)
        none = frozenset[Matrix]()
        first = times_us((none, *singles, none.union(*singles)))
        better = none.union(*(single for single in singles if first[single] < first[none]))
        progress("tuning", 1, 2)
        again = times_us((none, min(first, key=first.__getitem__), better))
        best = min(again, key=again.__getitem__)
        if again[best] >= _FASTER * again[none]:
            best = none
        tuning = replace(tuned, near_only=best, far_position=position)
        self._take(tuning, "measured", weights)
        progress("tuning", 2, 2)
        remember(self._key, tuning)

    def _take(
        self, tuning: RowTuning, origin: Literal["measured", "remembered"], weights: Sequence[Weight] = ()
    ) -> None:
        self._kernels.tuning = tuning
        self.far = Retuned(self._kernels, tuning.far()) if tuning.near_only else None
        for weight in weights:
            for part in (weight, *weight.parts):
                part.plans.clear()
        self.is_due = False
        self.used = Tuning(
            origin,
            {f"{type.name} x {cols}": team for (type, cols), team in tuning.lanes.items()},
            {_name(matrix): divided for matrix, divided in tuning.divisions.items()},
            tuple(_name(matrix) for matrix in tuning.divisions if matrix in tuning.near_only),
        )


def _name(matrix: Matrix) -> str:
    return f"{matrix.kernel.removesuffix('_groups')} {matrix.type.name} {matrix.rows} x {matrix.cols}"
