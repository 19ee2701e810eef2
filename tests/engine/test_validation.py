"""The validation layer, with synchronisation validation, over the descriptor build of every kernel.

Through buffer addresses the layer cannot see which memory a kernel touches; through descriptors it can.
"""

from __future__ import annotations

import pytest

from engine import FUSION_PASSES, MODES, Engine, Sampling
from engine.program.schedule import Scheduler
from engine.vulkan.commands import CommandBuffer
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf
from tests.engine.validated import open_validated

DESCRIPTOR_MODES = tuple(mode for mode in MODES if mode != "persistent")  # its tape has addresses


@pytest.fixture
def engine(tiny_path):
    with open_validated(tiny_path) as opened:
        yield opened


def run(engine: Engine) -> int:
    """Generate nine tokens; returns the dispatches of the last."""
    session = engine.session()
    session.prefill(list(range(3, 40)))
    tokens = list(session.generate(Sampling(temperature=0.9, seed=1), max_tokens=9, ignore_eos=True))
    return tokens[-1].timing.dispatches


def test_no_message_in_any_mode(engine):
    modes, policies = engine.modes, engine.barrier_policies
    for engine.mode in modes:
        for engine.barriers in policies:
            for engine.fusion in (True, False):
                run(engine)
    engine.request_stamps()
    run(engine)
    assert engine.vulkan_messages == []


@pytest.mark.parametrize("mode", DESCRIPTOR_MODES)
def test_every_missing_barrier_is_seen(engine, monkeypatch, mode):
    schedule = Scheduler.schedule
    removed = 0

    def without_one(self, ops, policy):
        ops, flags = schedule(self, ops, policy)
        if len(ops) > removed:  # a reply's first token has only its sampling ops
            flags[removed] = False
        return ops, flags

    monkeypatch.setattr(Scheduler, "schedule", without_one)
    engine.mode, engine.fusion = mode, FUSION_PASSES  # not those that pay here: without some, ops share a barrier
    dispatches = run(engine)
    assert engine.vulkan_messages == []  # the first op has no barrier to remove
    engine.stamp_every = 0
    for removed in range(1, dispatches if mode == "rerecord" else 3):
        before = len(engine.vulkan_messages)
        engine._runtime._modes.clear()  # or reuse would resubmit what it recorded before
        run(engine)
        assert any("HAZARD" in message for message in engine.vulkan_messages[before:]), removed


def test_tokens_in_flight_need_the_barrier_that_each_opens_with(engine, monkeypatch):
    """It is all that makes one token's writes seen by the next one's kernels, under barriers ``flags`` too."""
    engine.mode, engine.stamp_every = "pipelined", 0
    run(engine)
    assert engine.vulkan_messages == []
    recorded = CommandBuffer._pipeline_barrier

    def without_the_first(self, source, destination, barrier):
        if barrier is not self._open_barrier:
            recorded(self, source, destination, barrier)

    monkeypatch.setattr(CommandBuffer, "_pipeline_barrier", without_the_first)
    engine._runtime._modes.clear()  # with what was recorded
    run(engine)
    assert any("HAZARD" in message for message in engine.vulkan_messages)


@pytest.mark.parametrize(("name", "row_kernels"), [("gemma3", None), ("gemma3", False), ("qwen2", False)])
def test_no_message_from_other_architectures(tmp_path, name, row_kernels):
    path = hf_to_gguf(MODELS / name, tmp_path / "tiny.gguf")
    with open_validated(path, context=256, row_kernels=row_kernels) as engine:
        engine.stamp_every = 0
        for engine.mode in DESCRIPTOR_MODES:
            for engine.fusion in (FUSION_PASSES, False):
                run(engine)
        assert engine.vulkan_messages == []
