"""Engines and sessions that are over, models that cannot be used: one line, and nothing lost."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from engine import MODES, Engine, EngineError
from engine.vulkan.pipelines import Kernels
from engine.weights.gguf import GGUFFile
from tests.engine.tiny_model import write_tiny_llama
from tests.engine.tiny_runs import GREEDY


def test_an_older_session_says_that_a_newer_one_has_the_cache(engine):
    older = engine.session()
    older.prefill([5, 6, 7])
    reply = older.generate(GREEDY, max_tokens=30, ignore_eos=True)
    next(reply)
    newer = engine.session()
    newer.prefill([8, 9])
    assert list(reply) == []
    with pytest.raises(EngineError, match="a newer session"):
        older.prefill([5, 6, 7])
    with pytest.raises(EngineError, match="a newer session"):
        older.generate(GREEDY)
    assert newer.ids == [8, 9]


@pytest.mark.parametrize("mode", MODES)
def test_a_closed_engine_says_so_and_keeps_its_figures(tiny_path, mode):
    engine = Engine.open(tiny_path, context=64, mode=mode, row_kernels=False if mode == "persistent" else None)
    session = engine.session()
    session.prefill([5, 6, 7])
    reply = session.generate(GREEDY, max_tokens=30, ignore_eos=True)
    for _ in range(4):
        next(reply)
    engine.close()
    engine.close()
    assert list(reply) == []
    assert session.position >= 6
    assert engine.recordings > 0
    for call in (
        lambda: session.prefill([1]),
        lambda: session.generate(GREEDY),
        engine.session,
        engine.request_stamps,
        engine.measure_bubbles,
        engine.measure_submit_hint,
        lambda: engine.probe_gb_s,
        lambda: engine.queued_gap_us,
    ):
        with pytest.raises(EngineError, match="the engine is closed"):
            call()


def test_a_reply_in_another_thread_is_not_cut_off_by_close(tiny_path):
    with Engine.open(tiny_path, context=512) as engine:
        session = engine.session()
        session.prefill([5, 6, 7])
        inside, go_on = threading.Event(), threading.Event()
        settings = session._settings

        def wait():
            inside.set()
            go_on.wait(100)
            return settings()

        session._settings = wait
        ids = []
        reply = session.generate(GREEDY, max_tokens=3, ignore_eos=True)
        thread = threading.Thread(target=lambda: ids.extend(token.id for token in reply))
        thread.start()
        inside.wait(100)
        with pytest.raises(EngineError, match="in another thread"):
            engine.close()
        go_on.set()
        thread.join(100)
        assert len(ids) == 3


@pytest.mark.parametrize("fails", [False, True], ids=["", "fails"])
def test_close_waits_for_the_stamped_kernel_being_built_and_no_other(tiny_path, monkeypatch, fails):
    begun, go_on, asked, uncaught = threading.Event(), threading.Event(), [], []
    get = Kernels.get

    def slow(self, *job, **named):
        if threading.current_thread().name == "zincchat-stamps":
            asked.append(job)
            begun.set()
            go_on.wait(100)
            if fails:
                raise EngineError("building a kernel: the device was lost")
        return get(self, *job, **named)

    monkeypatch.setattr(Kernels, "get", slow)
    monkeypatch.setattr(threading, "excepthook", uncaught.append)
    engine = Engine.open(tiny_path, context=64)
    if engine._runtime.clock is None:
        pytest.skip("kernels have no clock here")
    begun.wait(100)
    closing = threading.Thread(target=engine.close)
    closing.start()
    engine._runtime._closing.wait(100)
    go_on.set()
    closing.join(100)
    assert len(asked) == 1 and not uncaught


@pytest.mark.parametrize("row_kernels", [None, False], ids=["", "gpu-kernels"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_a_damaged_model(tiny_path, tmp_path, value, row_kernels):
    data = bytearray(tiny_path.read_bytes())
    with GGUFFile.open(tiny_path) as file:
        offset = file.tensors["output_norm.weight"].offset
    data[offset : offset + 4] = np.float32(value).tobytes()
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(data)
    with Engine.open(damaged, context=64, row_kernels=row_kernels) as engine:
        session = engine.session()
        with pytest.raises(EngineError, match="damaged: download it again"):
            session.prefill([5, 6, 7])
        with pytest.raises(EngineError, match="needs a prefill"):
            session.generate(GREEDY)
        assert session.position == 0


def test_a_model_that_cannot_take_the_prompts_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    path, stages = write_tiny_llama(tmp_path / "mute.gguf", tokenizer=False), list[str]()
    with pytest.raises(EngineError, match=r"^mute.gguf has no tokenizer"):
        Engine.open(path, takes="text", progress=lambda stage, done, total: stages.append(stage))
    assert not stages
