"""How decode attention is shared out, and that it changes no id across buckets and flips."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import FUSION_PASSES, Engine, Sampling
from engine.program import attend_division as module
from engine.program.attend_division import (
    LEAST_RANGE_TOKENS,
    AttendDivision,
    attend_division,
    attend_shape,
    attended_ranges,
    most_heads,
    sharing_workgroups,
)
from engine.vulkan.pipelines import Resident
from tests.engine.tiny_runs import random_ids

RESIDENT = Resident(512, 132)
KIBIBYTES_48 = 48 << 10


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size", "most", "resident"),
    [
        *((32, 32, 128, (1, 1), (1, 1)), (32, 8, 128, (4, 4), (2, 2)), (9, 3, 64, (3, 3), (2, 2))),
        *((24, 4, 64, (3, 3), (2, 2)), (16, 4, 256, (4, 2), (2, 2)), (28, 4, 128, (4, 4), (2, 2))),
        *((40, 8, 128, (3, 3), (2, 2)), (96, 8, 64, (4, 4), (2, 2))),
    ],
)
def test_heads_share_keys_as_far_as_registers_go_and_results_as_memory_does(heads, kv_heads, head_size, most, resident):
    assert most_heads(heads, kv_heads, head_size, 32, KIBIBYTES_48, None) == most
    assert most_heads(heads, kv_heads, head_size, 32, KIBIBYTES_48, RESIDENT) == resident


def test_one_result_at_a_time_where_memory_is_short():
    assert most_heads(8, 2, 256, 32, 24 << 10, None) == (4, 1)


@pytest.mark.parametrize("subgroup_size", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("head_size", [8, 24, 64, 80, 96, 128, 256, 512])
def test_the_kernel_can_have_every_shape(head_size, subgroup_size):
    shape = attend_shape(head_size, subgroup_size)
    steps = shape.tokens * shape.lanes_a_token // shape.lanes
    assert steps in (4, 8) and steps <= shape.lanes_a_token and shape.tokens >= LEAST_RANGE_TOKENS
    assert subgroup_size % shape.lanes_a_token == 0 and subgroup_size // shape.lanes_a_token <= 8
    assert shape.lanes % subgroup_size == 0 and shape.tokens % (shape.lanes // shape.lanes_a_token) == 0


@pytest.mark.parametrize(("heads", "kv_heads", "most"), [(32, 8, 4), (32, 32, 1), (9, 3, 3), (16, 4, 4), (64, 8, 4)])
def test_one_head_a_workgroup_at_short_contexts(heads, kv_heads, most):
    assert attend_division(heads, kv_heads, most, 2, None) == AttendDivision(1, 2)
    assert attend_division(heads, kv_heads, 1, 1, RESIDENT) == AttendDivision(1, 1)


def test_long_contexts_read_a_key_once_and_fill_the_device():
    assert attend_division(32, 8, 4, 16, None) == AttendDivision(4, 16)  # 128 workgroups, one range each
    assert attend_division(32, 8, 2, 16, RESIDENT) == AttendDivision(2, 8)
    assert attend_division(32, 32, 1, 16, None) == AttendDivision(1, 4)
    assert attend_division(16, 4, 4, 32, None) == AttendDivision(4, 32)
    assert attend_division(28, 4, 4, 64, None) == AttendDivision(4, 16)  # seven heads share a key: four and three


@pytest.mark.parametrize("resident", [None, RESIDENT, Resident(128, 2)])
@pytest.mark.parametrize(("heads", "kv_heads", "most"), [(32, 8, 4), (32, 32, 1), (9, 3, 3), (200, 8, 1), (7, 1, 4)])
def test_every_range_has_a_workgroup_and_all_run_together(heads, kv_heads, most, resident):
    at_once = resident.workgroups if resident else 132
    for ranges in range(1, 300):
        division = attend_division(heads, kv_heads, most, ranges, resident)
        sharers = sharing_workgroups(heads, kv_heads, division.heads)
        assert division.heads in (1, most) and sharers * division.heads >= heads
        assert 1 <= division.workgroups <= ranges
        assert division.workgroups == 1 or division.workgroups * sharers <= at_once
        turns = -(-ranges // division.workgroups)
        assert division.workgroups == 1 or (turns - 1) * division.workgroups < ranges


def test_ranges_that_are_seen():
    assert [attended_ranges(tokens, 0, 64) for tokens in (1, 64, 65, 512)] == [1, 1, 2, 8]
    assert [attended_ranges(4096, window, 64) for window in (1, 2, 64, 65, 66, 512)] == [1, 2, 2, 2, 3, 9]
    assert [attended_ranges(4096, window, 256) for window in (0, 1, 257, 258)] == [16, 1, 2, 3]


SMALL = 17


@pytest.fixture
def small_device(monkeypatch: pytest.MonkeyPatch) -> list[AttendDivision]:
    """A device of few multiprocessors, on which heads share a workgroup from 512 tokens on; the divisions it makes."""
    made: list[AttendDivision] = []
    choose = module.attend_division

    def chosen(*args):
        made.append(choose(*args))
        return made[-1]

    monkeypatch.setattr("engine.program.lower.attend_division", chosen)
    monkeypatch.setattr(module, "_MULTIPROCESSORS", SMALL)
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
    assert set(small_device) == {AttendDivision(1, 4), AttendDivision(2, 8)}
    for multiprocessors, divisions in ((1, {(2, 1)}), (1 << 20, {(1, 4), (1, 8)})):
        small_device.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_MULTIPROCESSORS", multiprocessors)
            assert reply(tiny_path, flips=False) == shared_out
        assert set(small_device) == divisions
