"""How decode attention is shared out, and that it changes no id across buckets and flips."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple, cast

import numpy as np
import pytest

from engine import FUSION_PASSES, Engine, Sampling
from engine.decode.program import Settings
from engine.models.config import Geometry
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
from engine.program.attend_matrices import attend_matrices
from engine.vulkan.pipelines import Kernel, Resident
from tests.engine.gpu import Gpu
from tests.engine.hf_to_gguf import hf_to_gguf
from tests.engine.tiny_runs import attends_by_matrices, random_ids
from tests.engine.weights.folder import change_config, copy

RESIDENT = Resident(512, 132)
KIBIBYTES_48 = 48 << 10


def geometry(heads: int, kv_heads: int, head_size: int) -> Geometry:
    return cast(Geometry, SimpleNamespace(heads=heads, kv_heads=kv_heads, head_size=head_size))


@pytest.mark.parametrize(
    ("heads", "kv_heads", "head_size", "most", "resident"),
    [
        *((32, 32, 128, 1, 1), (32, 8, 128, 4, 2), (9, 3, 64, 4, 2), (24, 4, 64, 4, 2), (16, 4, 256, 2, 2)),
        *((28, 4, 128, 4, 2), (40, 8, 128, 4, 2), (16, 8, 128, 2, 2)),
    ],
)
def test_heads_share_keys_as_far_as_registers_and_memory_go(heads, kv_heads, head_size, most, resident):
    g = geometry(heads, kv_heads, head_size)
    assert most_heads(g, 32, KIBIBYTES_48, None) == most
    assert most_heads(g, 32, KIBIBYTES_48, RESIDENT) == resident


@pytest.mark.parametrize("subgroup_size", [4, 8, 16, 32, 64])
@pytest.mark.parametrize("head_size", [8, 24, 64, 80, 96, 128, 256, 512])
def test_the_kernel_can_have_every_shape(head_size, subgroup_size):
    shape = attend_shape(head_size, subgroup_size)
    chunk = 4 * shape.lanes // shape.lanes_a_token
    assert shape.tokens >= LEAST_RANGE_TOKENS and shape.tokens % chunk == 0
    assert shape.lanes_a_token >= 4  # a step's scores go to a quarter of a token's lanes
    assert subgroup_size % shape.lanes_a_token == 0 and subgroup_size // shape.lanes_a_token <= 8
    assert shape.lanes % subgroup_size == 0


def test_ranges_on_an_h200():
    assert attend_shape(128, 32) == (512, 16, 256)
    assert attend_shape(64, 32) == (512, 8, 512)
    assert attend_shape(256, 32) == (512, 32, 128)


@pytest.mark.parametrize(("heads", "kv_heads", "most"), [(32, 8, 4), (32, 32, 1), (9, 3, 4), (16, 4, 2), (64, 8, 4)])
def test_one_head_a_workgroup_at_short_contexts(heads, kv_heads, most):
    assert attend_division(heads, kv_heads, most, 2, 256, None) == AttendDivision(1, 2)
    assert attend_division(heads, kv_heads, most, 4, 128, None).heads == 1
    assert attend_division(heads, kv_heads, most, 3, 256, None).heads == most
    assert attend_division(heads, kv_heads, most, 2, 512, None).heads == most
    assert attend_division(heads, kv_heads, 1, 1, 512, RESIDENT) == AttendDivision(1, 1)


def test_long_contexts_read_a_key_once_and_fill_the_device():
    assert attend_division(32, 8, 4, 16, 256, None) == AttendDivision(4, 16)  # 128 workgroups, one range each
    assert attend_division(32, 8, 2, 16, 256, RESIDENT) == AttendDivision(2, 8)
    assert attend_division(32, 32, 1, 16, 256, None) == AttendDivision(1, 4)
    assert attend_division(16, 4, 2, 32, 128, None) == AttendDivision(2, 16)
    assert attend_division(28, 4, 4, 64, 256, None) == AttendDivision(4, 16)  # seven heads share a key: four and three


@pytest.mark.parametrize("resident", [None, RESIDENT, Resident(128, 2)])
@pytest.mark.parametrize(("heads", "kv_heads", "most"), [(32, 8, 4), (32, 32, 1), (9, 3, 4), (200, 8, 1), (7, 1, 4)])
def test_every_range_has_a_workgroup_and_all_run_together(heads, kv_heads, most, resident):
    at_once = resident.workgroups if resident else 132
    for ranges in range(1, 300):
        division = attend_division(heads, kv_heads, most, ranges, 256, resident)
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

    def noted(choose):
        def chosen(*args):
            made.append(choose(*args))
            return made[-1]

        return chosen

    for choose in (module.attend_division, module.shared_division):
        monkeypatch.setattr(f"engine.program.lower.{choose.__name__}", noted(choose))
    monkeypatch.setattr(module, "_MULTIPROCESSORS", SMALL)
    return made


class Ranges(NamedTuple):
    """Token ranges of the tiny model's two buckets, and of the second one by cooperative matrices where there are."""

    first: int
    second: int
    by_matrices: int


@pytest.fixture(scope="module")
def ranges() -> Ranges:
    with Gpu(row_kernels=False) as gpu:
        device = gpu.device
        tokens = attend_shape(16, device.subgroup_size).tokens
        found = attend_matrices(geometry(4, 2, 16), device.matrix_sizes, device.subgroup_size, device.shared_bytes)
        return Ranges(512 // tokens, 1024 // tokens, 1024 // (found.tokens if found else tokens))


class Reply(NamedTuple):
    """Its ids, and the keys and values behind it, which all but the first layer made of what attention came to."""

    ids: list[int]
    caches: list[bytes]


def reply(path: Path, *settings: tuple[str, str, bool]) -> Reply:
    """From 500 tokens of context to 540, which is in the second bucket; a few tokens each by mode, barriers, fusion."""
    with Engine.open(path, context=1024, fusion=FUSION_PASSES, row_kernels=False) as engine:
        engine.stamp_every = 0
        session = engine.session()
        session.prefill(random_ids(500, seed=2))
        ids = []
        for token in session.generate(Sampling(temperature=1.3, top_p=1.0, seed=5), max_tokens=40, ignore_eos=True):
            if settings and len(ids) % 5 == 0:
                engine.mode, engine.barriers, engine.fusion = settings[len(ids) // 5 % len(settings)]
            ids.append(token.id)
        runtime = engine._runtime
        caches = [cache for layer in runtime.prefill._buffers.cache.attention for cache in layer]
        read = [runtime._resources.memory.read(cache).view(np.uint8) for cache in caches]
        kept = [data.reshape(2, 1024, -1)[:, : session.position].tobytes() for data in read]  # of two KV heads
        return Reply(ids, kept)


FLIPS = (("reuse", "needed", True), ("pipelined", "flags", True), ("persistent", "needed", True))
FLIPS += (("pipelined", "flags", False),)


def test_the_division_changes_no_bit_across_a_bucket_and_flips(
    tiny_path: Path, small_device: list[AttendDivision], ranges: Ranges, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = {(1, ranges.first), (1, ranges.second)}
    monkeypatch.setattr("engine.program.small_kernels.attend_matrices", lambda *args: None)
    shared_out = reply(tiny_path, *FLIPS)
    assert set(small_device) >= {(1, ranges.first), (2, ranges.second)}
    for multiprocessors, alone_tokens, divisions in ((1, 0, {(2, 1)}), (1 << 20, 1 << 20, alone)):
        small_device.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_MULTIPROCESSORS", multiprocessors)
            patch.setattr(module, "_ALONE_TOKENS", alone_tokens)
            assert reply(tiny_path) == shared_out
        assert set(small_device) == divisions


def test_nor_does_it_with_matrices(tiny_path: Path, small_device: list[AttendDivision], ranges: Ranges) -> None:
    shared_out = reply(tiny_path, *FLIPS)
    usual = {(1, ranges.first), (2, ranges.by_matrices)}
    assert set(small_device) >= usual
    for multiprocessors, divisions, setting in (
        (1, {(1, 1), (2, 1)}, FLIPS[0]),
        (1 << 20, usual, FLIPS[1]),
        (1, set(), FLIPS[2]),  # which has as many as its workgroups
        (1, {(1, 1), (2, 1)}, FLIPS[3]),
    ):
        small_device.clear()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_MULTIPROCESSORS", multiprocessors)
            assert reply(tiny_path, setting) == shared_out
        assert set(small_device) >= divisions


@pytest.mark.parametrize(("window", "multiprocessors"), [(1, 132), (129, 1)])
def test_windows_by_matrices_change_no_id_in_any_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int, multiprocessors: int
) -> None:
    """From the first token on, and across a range's end; with a range a workgroup, and with all in one."""
    model = copy("gemma3", tmp_path)
    change_config(model, sliding_window=window)
    path = hf_to_gguf(model, tmp_path / "tiny.gguf")
    monkeypatch.setattr(module, "_ALONE_TOKENS", 0)
    monkeypatch.setattr(module, "_MULTIPROCESSORS", multiprocessors)
    prompt = random_ids(250, seed=3)
    with Engine.open(path, context=512, row_kernels=False) as engine:
        if not attends_by_matrices(engine):
            pytest.skip("this device has no cooperative matrices of a size that fits")
        for length in (1, len(prompt)):
            found = []
            for engine.mode, engine.barriers, engine.fusion in (("reuse", "needed", False), *FLIPS):
                session = engine.session()
                session.prefill(prompt[:length])
                tokens = session.generate(Sampling(temperature=1.3, seed=5), max_tokens=12, ignore_eos=True)
                found.append([token.id for token in tokens])
            assert all(ids == found[0] for ids in found), length


@pytest.mark.parametrize("window", [None, 700, 1300])
def test_the_outer_buckets_have_every_kernel(
    tiny_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, window: int | None
) -> None:
    """Those of a bucket between them too, whose attention may be built for one range a workgroup."""
    path = tiny_path
    if window is not None:
        model = copy("gemma3", tmp_path)  # of whose layers one sees all
        change_config(model, sliding_window=window)
        path = hf_to_gguf(model, tmp_path / "tiny.gguf")
    with Engine.open(path, context=1900, row_kernels=False) as engine:
        runtime = engine._runtime

        def kernels(bucket: int) -> set[Kernel]:
            settings = Settings("reuse", FUSION_PASSES, "needed")
            return {op.kernel for op in runtime.builder.build(bucket, settings, runtime._slot).ops}

        some = set()
        for multiprocessors in (1, 4, 7, 9, 13, 16, 18, 24, 132):
            monkeypatch.setattr(module, "_MULTIPROCESSORS", multiprocessors)
            outer = set[Kernel]().union(*map(kernels, runtime.builder.outer_buckets))
            for bucket in (512, 1024, 1536, 1900):
                assert kernels(bucket) <= outer, (multiprocessors, bucket)
            some |= {"ONE_RANGE" in kernel.defines for kernel in outer if kernel.name == "attend_matrices"}
        assert some == ({False, True} if attends_by_matrices(engine) else set())
