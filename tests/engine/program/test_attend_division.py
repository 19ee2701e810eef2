"""How decode attention is shared out, and that it changes no id across buckets and flips."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import FUSION_PASSES, Engine, Sampling
from engine.program import attend_division as module
from engine.program.attend_division import AttendDivision, attend_division, attended_ranges, most_heads
from engine.vulkan.pipelines import Resident
from tests.engine.tiny_runs import random_ids

RESIDENT = Resident(512, 132)
KIBIBYTES_48 = 48 << 10


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size", "most"),
    [
        *((32, 32, 128, (1, 1)), (32, 8, 128, (4, 4)), (9, 3, 64, (3, 3)), (24, 4, 64, (6, 6))),
        *((16, 4, 256, (4, 2)), (64, 8, 128, (8, 4)), (28, 4, 128, (7, 4)), (40, 8, 128, (5, 3)), (96, 8, 64, (6, 6))),
    ],
)
def test_as_many_heads_as_share_a_key_and_results_as_fit(heads, kv_heads, head_size, most):
    assert most_heads(heads, kv_heads, head_size, 32, KIBIBYTES_48) == most


def test_one_result_at_a_time_where_memory_is_short():
    assert most_heads(8, 2, 256, 32, 16 << 10) == (4, 1)


@pytest.mark.parametrize(("heads", "kv_heads", "most"), [(32, 8, 4), (32, 32, 1), (9, 3, 3), (16, 4, 4), (64, 8, 8)])
def test_one_head_a_workgroup_at_short_contexts(heads, kv_heads, most):
    assert attend_division(heads, kv_heads, 64, most, 8, None).heads == 1
    assert attend_division(heads, kv_heads, 64, most, 1, RESIDENT) == AttendDivision(1, 1)


def test_long_contexts_read_a_key_once_and_fill_the_device():
    assert attend_division(32, 8, 128, 4, 64, None) == AttendDivision(4, 32)  # 256 workgroups, two ranges each
    assert attend_division(32, 8, 128, 4, 64, RESIDENT) == AttendDivision(4, 16)
    assert attend_division(32, 32, 128, 1, 64, None) == AttendDivision(1, 8)
    assert attend_division(16, 4, 256, 4, 64, None) == AttendDivision(4, 32)  # one a multiprocessor
    assert attend_division(9, 3, 64, 3, 128, RESIDENT).heads == 3


@pytest.mark.parametrize("resident", [None, RESIDENT, Resident(128, 2)])
@pytest.mark.parametrize(("heads", "kv_heads", "most"), [(32, 8, 4), (32, 32, 1), (9, 3, 3), (200, 8, 1), (6, 1, 6)])
def test_every_range_has_a_workgroup_and_all_run_together(heads, kv_heads, most, resident):
    at_once = resident.workgroups if resident else 264
    for ranges in range(1, 300):
        division = attend_division(heads, kv_heads, 128, most, ranges, resident)
        assert heads // kv_heads % division.heads == 0 and division.heads <= most
        assert 1 <= division.workgroups <= ranges
        assert division.workgroups == 1 or division.workgroups * (heads // division.heads) <= at_once
        turns = -(-ranges // division.workgroups)
        assert division.workgroups == 1 or (turns - 1) * division.workgroups < ranges


def test_ranges_that_are_seen():
    assert [attended_ranges(tokens, 0) for tokens in (1, 64, 65, 512)] == [1, 1, 2, 8]
    assert [attended_ranges(4096, window) for window in (1, 2, 64, 65, 66, 512)] == [1, 2, 2, 2, 3, 9]


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> list[AttendDivision]:
    """A device of five workgroups at a time, for which heads share one as soon as possible; the divisions it makes."""
    made: list[AttendDivision] = []
    choose = module.attend_division

    def chosen(*args):
        made.append(choose(*args))
        return made[-1]

    monkeypatch.setattr("engine.program.lower.attend_division", chosen)
    for name, value in (("_MULTIPROCESSORS", 5), ("_GROUPS_A_MULTIPROCESSOR", 1), ("_LEAST_TURN_US", 0.0)):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "_HEAD_US", 0.0)
    return made


def reply(path: Path, flips: bool) -> list[int]:
    """The ids of a reply from 500 tokens of context to 540, which is in the second bucket."""
    with Engine.open(path, context=1024, fusion=FUSION_PASSES, row_kernels=False) as engine:
        engine.stamp_every = 0
        session = engine.session()
        session.prefill(random_ids(500, seed=2))
        ids = []
        for token in session.generate(Sampling(temperature=1.3, top_p=1.0, seed=5), max_tokens=40, ignore_eos=True):
            ids.append(token.id)
            if flips and len(ids) % 7 == 0:
                engine.fusion, engine.mode = not engine.fusion, "pipelined" if engine.mode == "reuse" else "reuse"
        return ids


def test_the_division_changes_no_id_across_a_bucket_and_flips(tiny_path: Path, small_device: list[AttendDivision]):
    shared_out = reply(tiny_path, flips=True)
    assert set(small_device) == {AttendDivision(1, 1), AttendDivision(2, 2)}
    small_device.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SHORT_RANGES", 1 << 20)
        patch.setattr(module, "_MULTIPROCESSORS", 1 << 20)
        assert reply(tiny_path, flips=False) == shared_out
    assert set(small_device) == {AttendDivision(1, 8), AttendDivision(1, 16)}
