"""The order of ops and the barriers between them, on ops that only name what they touch."""

from __future__ import annotations

import itertools
import random
from types import SimpleNamespace

import pytest

from engine import EngineError
from engine.program.schedule import Scheduler
from engine.vulkan.memory import Slice

MEMORY = Slice(None, 0, 1000, 10_000, None, False)


def part(start: int, size: int, constant: bool = False) -> Slice:
    piece = MEMORY.part(start, size)
    piece.constant = constant
    return piece


def op(name: str, reads: list[Slice], writes: list[Slice]):
    kernel = SimpleNamespace(reads=tuple(range(len(reads))), writes=tuple(range(len(reads), len(reads) + len(writes))))
    return SimpleNamespace(name=name, kernel=kernel, buffers=(*reads, *writes))


def scheduled(*ops) -> str:
    """The names in order, with | for a barrier."""
    order, flags = Scheduler().schedule(list(ops), "needed")
    return "".join("|" * flag + one.name for one, flag in zip(order, flags, strict=True))


A, B, C, D = (part(i * 100, 100) for i in range(4))


def test_every_puts_one_after_each():
    ops = [op("a", [], [A]), op("b", [], [B]), op("c", [], [C])]
    assert Scheduler().schedule(ops, "every") == (ops, [False, True, True])


def test_independent_ops_need_none_and_hazards_of_each_kind_do():
    assert scheduled(op("a", [A], [B]), op("b", [A], [C])) == "ab"
    assert scheduled(op("w", [], [A]), op("r", [A], [B])) == "w|r"  # read after write
    assert scheduled(op("r", [A], [B]), op("w", [C], [A])) == "r|w"  # write after read
    assert scheduled(op("w", [C], [A]), op("v", [D], [A])) == "w|v"  # write after write


def test_parts_of_a_range_count_where_they_overlap_only():
    whole, low, high = part(0, 100), part(0, 50), part(50, 50)
    assert scheduled(op("w", [], [low]), op("r", [high], [B])) == "wr"
    assert scheduled(op("w", [], [low]), op("v", [], [high]), op("r", [whole], [B])) == "wv|r"
    assert scheduled(op("w", [], [whole]), op("r", [high], [B])) == "w|r"


def test_constants_are_no_hazard():
    weights = part(0, 100, constant=True)
    assert scheduled(op("a", [weights], [B]), op("b", [weights], [C])) == "ab"


def test_one_barrier_serves_all_that_is_due_and_ops_move_up_to_share_it():
    ops = [op("a", [], [A]), op("b", [A], [B]), op("c", [], [C]), op("d", [C], [D])]
    assert scheduled(*ops) == "ac|bd"


def test_an_unknown_policy_is_named():
    with pytest.raises(EngineError, match="'some'"):
        Scheduler().schedule([], "some")


def test_random_programs_keep_every_dependence_behind_a_barrier():
    rng = random.Random()
    parts = [part(start, size) for start, size in ((0, 100), (0, 50), (50, 50), (100, 10), (105, 10), (200, 10))]
    for _ in range(200):
        ops = [
            op(str(i), rng.sample(parts, rng.randint(0, 3)), rng.sample(parts, rng.randint(1, 2))) for i in range(12)
        ]
        order, flags = Scheduler().schedule(list(ops), "needed")
        level = dict(zip((id(one) for one in order), itertools.accumulate(flags), strict=True))
        assert len(level) == 12
        for first, second in itertools.combinations(ops, 2):
            if conflict(first, second):
                assert level[id(first)] < level[id(second)]


def conflict(first, second) -> bool:
    """Whether two ops touch a common byte and one of them writes it."""

    def bytes_of(one, which) -> set[int]:
        return {byte for i in which for byte in range(*one.buffers[i].range)}

    writes, others = bytes_of(first, first.kernel.writes), bytes_of(second, second.kernel.writes)
    return bool(
        writes & others | writes & bytes_of(second, second.kernel.reads) | bytes_of(first, first.kernel.reads) & others
    )
