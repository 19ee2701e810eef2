"""Barrier policy ``flags``: kernels that wait for each other in memory."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from engine import FUSION_PASSES, MODES, Engine, EngineError, Sampling
from engine.decode import flags
from engine.decode.flags import Flags
from engine.decode.pipelined import Pipelined
from engine.decode.program import Settings
from engine.decode.step import Step
from engine.program import attend_division
from engine.program.op import Op
from engine.vulkan import device as device_module
from engine.vulkan.api import ffi, lib
from engine.vulkan.commands import CommandBuffer
from tests.engine.gpu import Gpu
from tests.engine.tiny_runs import GREEDY, random_ids

LANES, PATIENCE = 64, 1 << 10


@pytest.fixture
def waiting() -> Iterator[Gpu]:
    with Gpu() as gpu:
        if (reason := flags.unavailable(gpu.device)) is not None:
            pytest.skip(reason)
        yield gpu


def control(policy: Flags) -> list[int]:
    return policy._memory.read(policy._control).view(np.uint32)[:2].tolist()


def chain(gpu: Gpu, groups: int, count: int) -> tuple[list[Op], object]:
    """Dispatches that check what the one before wrote, and what they found: wrong words and visits."""
    kernel = gpu.kernels.get("grid_check", {"LANES": LANES})
    pages = [gpu.memory.allocate(groups * LANES * 4) for _ in range(2)]
    found = gpu.memory.allocate(256)
    gpu.memory.write(found, np.zeros(64, np.uint32))
    gpu.memory.flush()
    ops = [Op("check", kernel, (pages[i % 2], pages[1 - i % 2], found), (i,), (groups, 1, 1)) for i in range(count)]
    return ops, found


@pytest.mark.parametrize("groups", [1, 3, 40])
def test_what_one_dispatch_writes_the_next_sees(waiting: Gpu, groups: int) -> None:
    policy = Flags(waiting.device, waiting.memory, waiting.kernels)
    ops, found = chain(waiting, groups, 30)
    recorded = CommandBuffer(waiting.device)
    recorded.record_all(*policy.recordable(ops, [index > 0 for index in range(30)], "flags"))
    for run in range(1, 4):  # the counter is zero again behind each
        recorded.run_us()
        assert waiting.memory.read(found).view(np.uint32)[:2].tolist() == [0, run * 30 * groups]
        assert control(policy) == [0, 0] and not policy.stuck
    recorded.close()


def test_a_kernel_waits_for_all_before_its_barrier_and_no_more(waiting: Gpu) -> None:
    policy = Flags(waiting.device, waiting.memory, waiting.kernels)
    ops, _ = chain(waiting, 5, 4)
    ops[2].groups = (1, 2, 3)  # in z the bubble meter repeats workgroups
    waits, barriers = policy.recordable(ops, [False, True, False, True], "flags")
    targets, arrivals = zip(*(struct.unpack_from("<II", op.push, 8) for op in waits), strict=True)
    assert targets == (0, 5, 5, 16, 21)  # the last one is added, and waits for all
    assert arrivals[:4] == (1, 1, 1, 1) and 21 + arrivals[4] == 1 << 32
    assert not any(barriers)
    for policy_name in ("every", "needed"):
        assert policy.recordable(ops, [False, True, True, True], policy_name) == (ops, [False, True, True, True])


def test_a_wait_in_vain_ends_and_is_told(waiting: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "_PATIENCE", {True: PATIENCE, False: PATIENCE})
    policy = Flags(waiting.device, waiting.memory, waiting.kernels)
    ops, _ = chain(waiting, 3, 3)
    waits, barriers = policy.recordable(ops, [False, True, True], "flags")
    waits[1].push = waits[1].push[:8] + struct.pack("<I", 99) + waits[1].push[12:]
    commands = CommandBuffer(waiting.device)
    commands.record_all(waits, barriers)
    commands.run_us()
    commands.close()
    assert policy.stuck and control(policy)[1] == 1
    policy.reset()
    assert not policy.stuck and control(policy) == [0, 0]


def test_the_check_passes_here_and_fails_where_nobody_waits(waiting: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flags, "_CHECK_ROUNDS", 20)
    policy = Flags(waiting.device, waiting.memory, waiting.kernels)
    assert policy.check() is None
    monkeypatch.setattr(flags, "_PATIENCE", {True: PATIENCE, False: PATIENCE})
    impatient = Flags(waiting.device, waiting.memory, waiting.kernels)
    recordable = impatient.recordable

    def backwards(ops: list[Op], barriers: list[bool], policy: str) -> flags.Recordable:
        waits, none = recordable(ops, barriers, policy)
        return list(waits)[::-1], none

    monkeypatch.setattr(impatient, "recordable", backwards)
    assert "do not start in order" in (impatient.check() or "")
    assert not impatient.stuck and control(impatient) == [0, 0]
    monkeypatch.setattr(policy, "recordable", lambda ops, barriers, name: (ops[::-1], barriers))
    assert "do not see what those before them wrote" in (policy.check() or "")
    monkeypatch.setattr(policy, "recordable", lambda ops, barriers, name: (ops[:-1], barriers[:-1]))
    visits = 19 * flags._CHECK_GROUPS[waiting.device.is_cpu]
    assert f"(0 words wrong, {visits} visits)" in (policy.check() or "")


def test_in_mid_reply_the_text_stays_and_a_token_has_its_account(engine: Engine) -> None:
    engine.stamp_every, prompt = 0, random_ids(6)
    replies = {}
    modes = engine.modes
    for engine.barriers in ("needed", "flags"):
        for engine.mode in modes:
            session = engine.session()
            session.prefill(prompt)
            tokens = []
            # long enough: mode persistent may have 16 tokens in flight when the policy changes
            for token in session.generate(Sampling(temperature=0.9, seed=4), 40, ignore_eos=True):
                tokens.append(token)
                if len(tokens) == 8:
                    engine.barriers = "flags" if engine.barriers == "needed" else "needed"
                if len(tokens) == 32:
                    engine.request_stamps()
            replies[engine.barriers, engine.mode] = [token.id for token in tokens]
            stamped = [token.timing for token in tokens if token.timing.measured_by == "twin"]
            assert {timing.barriers for timing in (token.timing for token in tokens)} == {"needed", "flags"}
            for timing in stamped:
                assert timing.kernels_us > 0 and timing.kernels_us + timing.bubbles_us <= timing.gpu_total_us * 1.01
    assert len({tuple(ids) for ids in replies.values()}) == 1


@pytest.fixture(scope="module")
def driver_id() -> int:
    with Gpu() as gpu:
        driver = ffi.new("VkPhysicalDeviceDriverProperties*", {"sType": 1000196000})
        lib.vkGetPhysicalDeviceProperties2(
            gpu.device.physical, ffi.new("VkPhysicalDeviceProperties2*", {"sType": 1000059001, "pNext": driver})
        )
        assert driver.driverID != 0
        assert gpu.device.barriers_order_memory == (driver.driverID == 4)
        return int(driver.driverID)


@pytest.mark.parametrize("orders", [True, False], ids=["NVIDIA's", "another's"])
def test_barriers_without_a_fence_are_one_drivers_and_change_no_id(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, driver_id: int, orders: bool
) -> None:
    """As this driver is told to be that one, or not: all kernels of a token have them, or none has."""
    monkeypatch.setattr(device_module, "_NVIDIA_PROPRIETARY", driver_id if orders else driver_id + 1)
    monkeypatch.setattr(attend_division, "_ALONE_TOKENS", 0)  # by matrices where there are some that fit
    prompt, sampling = random_ids(5), Sampling(temperature=0.9, seed=4)
    with Engine.open(tiny_path, row_kernels=False) as engine:
        if "flags" not in engine.barrier_policies:
            pytest.skip("this device has no barriers flags")
        runtime, waits = engine._runtime, engine._runtime._resources.flags
        expected = reply(engine, prompt, 12, sampling)
        engine.barriers = "flags"
        for passes in ((), FUSION_PASSES):
            engine.fusion = passes
            assert reply(engine, prompt, 12, sampling) == expected
            settings = Settings("reuse", passes, "flags")
            program = runtime.builder.build(runtime.builder.bucket(0), settings, runtime._slot)
            defines = [op.kernel.defines for op in waits.recordable(program.ops, program.barriers, "flags")[0]]
            assert all("FLAGS" in each and ("BARRIERS_ORDER_MEMORY" in each) == orders for each in defines)


@pytest.fixture(scope="module", params=[None, False], ids=["", "gpu-kernels"])
def impatient(tiny_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    """An engine whose kernels soon give up: where dispatches run one after another they never wait."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(flags, "_PATIENCE", {True: PATIENCE, False: PATIENCE})
        with Engine.open(tiny_path, fusion=FUSION_PASSES, row_kernels=request.param, barriers="flags") as opened:
            yield opened


@pytest.fixture
def offering(impatient: Engine) -> Iterator[Engine]:
    """It offers the policy again after a test in which it came to refuse it."""
    impatient.mode, impatient.barriers, impatient.stamp_every = "reuse", "needed", 0
    yield impatient
    impatient._runtime.flag_policy.refused.clear()
    for mode in impatient._runtime._modes.values():  # with what was recorded to wait in vain
        mode.close()
    impatient._runtime._modes.clear()


def reply(engine: Engine, prompt: list[int], count: int = 8, sampling: Sampling = GREEDY) -> list[int]:
    session = engine.session()
    session.prefill(prompt)
    return [token.id for token in session.generate(sampling, count, ignore_eos=True)]


def wait_in_vain(monkeypatch: pytest.MonkeyPatch, engine: Engine) -> None:
    """From the next recording on one of a token's kernels waits for more than there is."""
    waits = engine._runtime._resources.flags
    recordable = waits.recordable

    def wrong(ops: list[Op], barriers: list[bool], policy: str) -> flags.Recordable:
        some, left = recordable(ops, barriers, policy)
        if policy == "flags":
            op = some[len(ops) // 2]
            some[len(ops) // 2] = op.with_kernel(op.kernel, op.push[:8] + struct.pack("<I", 1 << 30) + op.push[12:])
        return some, left

    monkeypatch.setattr(waits, "recordable", wrong)


@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "persistent"])
def test_after_a_wait_in_vain_the_engine_goes_on_with_needed(
    offering: Engine, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    engine, prompt = offering, random_ids(5)
    expected = reply(engine, prompt, 24)
    engine.mode = mode
    session = engine.session()
    session.prefill(prompt)
    found = []
    with monkeypatch.context() as patch, pytest.raises(EngineError) as failure:
        for token in session.generate(GREEDY, 24, ignore_eos=True):
            found.append(token.id)
            if len(found) == 2:
                engine.barriers = "flags"
                wait_in_vain(patch, engine)
    assert found == expected[: len(found)] and len(found) < 20 and session.position == 0
    assert str(failure.value) == (
        "barriers flags: a kernel waited in vain for those before it: ask again, with barriers needed"
    )
    counters = engine._runtime._resources.arrivals
    assert not engine._runtime.memory.read(counters).any() and control(engine._runtime._resources.flags) == [0, 0]
    assert engine.barriers == "needed" and "flags" not in engine.barrier_policies
    session.prefill(prompt)  # in the same session, which kept nothing of what may be wrong
    assert session.prefill_stats.kept == 0
    assert [token.id for token in session.generate(GREEDY, 24, ignore_eos=True)] == expected
    with pytest.raises(EngineError, match=r"^barriers flags are not offered here: a kernel waited in vain"):
        engine.barriers = "flags"


@pytest.mark.parametrize("ends", ["dropped", "end token"])
def test_a_wait_in_vain_behind_the_last_token_leaves_nothing_to_build_upon(
    offering: Engine, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    engine, prompt, sampling = offering, random_ids(5), Sampling(temperature=2.0, seed=1)
    expected = reply(engine, prompt, 24, sampling)
    engine.mode, engine.barriers = "pipelined", "flags"
    session = engine.session()
    session.prefill(prompt)
    if ends == "end token":
        session._stop_ids = frozenset(
            {next(id for at, id in enumerate(expected) if at > 4 and id not in expected[:at])}
        )
    collect = Pipelined.collect

    def last_one_stuck(mode: Pipelined) -> Step:
        step = collect(mode)
        if mode.in_flight == 0:
            engine._runtime._resources.flags._stuck[0] = 1
        return step

    monkeypatch.setattr(Pipelined, "collect", last_one_stuck)
    tokens = session.generate(sampling, 24, ignore_eos=ends == "dropped")
    if ends == "dropped":
        next(tokens)
        next(tokens)
        tokens.close()
    else:
        list(tokens)
        assert session.finish_reason == "stop"
    assert engine.barriers == "needed"
    session.prefill([*prompt, *expected[:2], *random_ids(3)])
    assert session.prefill_stats.kept == 0


def test_a_measurement_whose_kernels_waited_in_vain_is_an_error(
    offering: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, prompt = offering, random_ids(5)
    expected = reply(engine, prompt)
    instruments = engine._runtime.instruments

    def stuck(*arguments: object) -> None:
        engine._runtime._resources.flags._stuck[0] = 1  # as a kernel leaves it

    for name in ("run_once", "bubbles", "submit_hint"):
        monkeypatch.setattr(instruments, name, stuck)
    for measure in (engine.warm_up, engine.measure_bubbles, engine.measure_submit_hint):
        engine._runtime.flag_policy.refused.clear()
        engine.barriers = "flags"
        with pytest.raises(EngineError, match=r"^barriers flags: a kernel waited in vain"):
            measure()
        assert engine.barriers == "needed" and reply(engine, prompt) == expected
