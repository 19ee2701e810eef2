"""When barrier policy ``flags`` is offered, and what is built for it when."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import FUSION_PASSES, Engine, EngineError
from engine.decode.flags import Flags
from engine.flag_policy import FlagPolicy
from engine.vulkan.device import Device
from tests.engine.tiny_runs import GREEDY, random_ids


def usually(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's usual policy is this one, and nothing was built or checked to find that out."""
    monkeypatch.setattr(FlagPolicy, "usual", lambda self, passes: policy)


def test_a_device_with_too_few_push_constants_is_refused(tiny_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = property(lambda self: 112, lambda self, value: None)
    monkeypatch.setattr(Device, "most_push_bytes", few, raising=False)
    reason = r"^barriers flags are not offered here: kernel \w+ .* bytes of push constants of 104$"
    with pytest.raises(EngineError, match=reason):
        Engine.open(tiny_path, context=64, barriers="flags", row_kernels=False)


@pytest.mark.parametrize("usual", ["needed", "flags"])
def test_what_is_built_at_a_flip_is_no_part_of_a_token(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch, usual: str
) -> None:
    usually(usual, monkeypatch)
    with Engine.open(tiny_path, context=64) as engine:
        engine.stamp_every = 0
        assert engine.barriers == usual
        engine.barriers = "needed"
        session = engine.session()
        session.prefill(random_ids(3))
        timings = []
        for token in session.generate(GREEDY, 12, ignore_eos=True):
            timings.append(token.timing)
            engine.barriers = "flags" if len(timings) > 2 else "needed"
        # a token or two after it was set: text may wait for the rest of a character
        first = [timing.barriers for timing in timings].index("flags")
        unknown = [at for at, timing in enumerate(timings) if timing.gpu_idle_before_us is None]
        assert first > 0 and unknown == ([first] if usual == "needed" else [])  # else they were built at the opening


def test_where_it_is_not_offered_the_reason_is_said(tiny_path: Path) -> None:
    with Engine.open(tiny_path, context=64, binding="descriptors", fusion=FUSION_PASSES) as engine:
        assert engine.barriers == "needed" and engine.barrier_policies == ("every", "needed")
        with pytest.raises(EngineError, match=r"^barriers flags are not offered here: the validation layer"):
            engine.barriers = "flags"


def test_a_device_that_fails_the_check_is_refused_from_then_on(
    tiny_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Flags, "check", lambda self: "dispatches run as they like")
    reason = r"^barriers flags are not offered here: dispatches run as they like$"
    with pytest.raises(EngineError, match=reason):
        Engine.open(tiny_path, context=64, barriers="flags")
    usually("flags", monkeypatch)  # but not for this fusion
    with Engine.open(tiny_path, context=64) as engine:
        assert engine.barriers == "needed" and "flags" not in engine.barrier_policies
    usually("needed", monkeypatch)
    with Engine.open(tiny_path, context=64) as engine:
        engine.barriers = "flags"
        session = engine.session()
        session.prefill(random_ids(3))
        with pytest.raises(EngineError, match=reason):
            list(session.generate(GREEDY, 3))
        assert engine.barriers == "needed" and "flags" not in engine.barrier_policies
        session.prefill(random_ids(3))
        assert len(list(session.generate(GREEDY, 3, ignore_eos=True))) == 3
