"""An engine without a GPU: it obeys the public API and makes up plausible timings, so that the app can be tested."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from engine import BubbleReport, EngineError, Sampling, TokenTiming
from tests.zincchat.fake_session import VOCAB_SIZE, FakeSession

ANSWER = """A pipeline barrier makes one kernel's writes visible to the next before it starts.
On a batch of one nothing else is running, so the GPU *waits*:

| kernel     | waits for |
| ---------- | --------- |
| attention  | QKV       |
| down proj. | SwiGLU    |

In code:

```c
vkCmdPipelineBarrier2(commands, &dependency);
vkCmdDispatch(commands, groups, 1, 1);
```

- record once,
- patch the parameters,
- submit again.
"""
STAMP_EVERY = 16
EDGES_US = 5.0


class FakeEngine:
    """``answer`` is spoken again and again where ``repeat``; ``fail_at`` is the token at which the device is lost.

    ``thoughts`` come before the answer unless thinking is switched off; ``thinking`` is the model's own way. Before
    each token it waits while ``hold`` is true, called with the engine and the token's index (-1: in the prefill, after
    its first chunk), until ``go_on`` is set or the reply is cancelled: what a test does meanwhile races with nothing.
    """

    def __init__(
        self,
        answer: str = ANSWER,
        *,
        thoughts: str = "",
        thinking: bool | None = None,
        repeat: bool = False,
        token_s: float = 0.001,
        context: int | None = None,
        software: bool = True,
        can_chat: bool = True,
        fail_at: int | None = None,
        hold: Callable[[FakeEngine, int], bool] | None = None,
        has_clock: bool = True,
        measurable: bool = True,
        refused_modes: dict[str, str] | None = None,
        refused_barriers: dict[str, str] | None = None,
    ) -> None:
        self.owner = threading.get_ident()
        self.refused_modes, self.refused_barriers = refused_modes or {}, refused_barriers or {}
        self.mode, self.fusion, self.barriers = "reuse", True, "needed"
        self.context = context or (1 << 20 if repeat else 2048)  # an endless reply ends where a test says so
        self.model = SimpleNamespace(
            name="SmolLM2-135M-Instruct",
            path="model.gguf",
            architecture="llama",
            quantisation="Q4_1",
            parameters=134_515_008,
            file_bytes=98_000_000,
            trained_context=8192,
            vocab_size=VOCAB_SIZE,
            layers=30,
            can_chat=can_chat,
            thinking=thinking,
        )
        self.device = SimpleNamespace(
            index=0,
            name="llvmpipe (LLVM 20.1.2, 256 bits)" if software else "NVIDIA H200",
            kind="cpu" if software else "discrete",
            driver="llvmpipe Mesa 26.0.0",
            api_version="1.4.354",
            memory_bytes=2**31,
            is_software=software,
        )
        self.device_bytes, self.weight_bytes = 160_000_000, 97_000_000
        self.kv_token_bytes, self.state_bytes = 1_000_000, 0
        self.builds = self.recordings = 0
        self.sampling = Sampling(temperature=0.2, top_p=0.9)
        self.stop_ids = frozenset({2})
        self.stamp_every = STAMP_EVERY
        self._measurable = measurable
        self.closed = False
        self.prompts: list[list[dict[str, str]]] = []
        self.samplings: list[Sampling] = []
        self.newest_session: FakeSession | None = None
        self.timings: list[TokenTiming] = []
        self._answer, self._repeat, self._thoughts = answer, repeat, thoughts
        self.switched: list[bool | None] = []
        self._token_s = token_s
        self.hold, self.go_on = hold, threading.Event()
        self.fail_at = fail_at
        self.warm = False
        self.has_clock = has_clock

    @property
    def barriers(self) -> str:
        """As the real one's: "needed" once the policy is refused."""
        return "needed" if self._barriers in self.refused_barriers else self._barriers

    @barriers.setter
    def barriers(self, value: str) -> None:
        if value in self.refused_barriers:
            raise EngineError(f"barriers {value} are not offered here: {self.refused_barriers[value]}")
        self._barriers = value

    def render(self, messages: list[dict[str, str]], thinking: bool | None = None) -> list[int]:
        """One id a word, and three for each message's frame."""
        self._check_thread()
        self.prompts.append([dict(message) for message in messages])
        assert thinking is None or self.model.thinking is not None, "the model has no switch"
        self.switched.append(thinking)
        ids = []
        for message in messages:
            ids += [1, *(zlib.crc32(word.encode()) % VOCAB_SIZE for word in message["content"].split()), 2, 3]
        return ids

    def session(self) -> FakeSession:
        self._check_thread()
        self.newest_session = FakeSession(self)
        return self.newest_session

    def warm_up(self) -> None:
        self._check_thread()
        self.warm = True

    @property
    def probe_gb_s(self) -> float:
        if not self._measurable:
            raise EngineError("too little memory is left for the bandwidth probe")
        return 20.0 if self.device.is_software else 4620.0

    @property
    def queued_gap_us(self) -> float:
        if not self._measurable:
            raise EngineError("the GPU never had two buffers queued")
        return 100.0 if self.device.is_software else 13.0

    def token_bytes(self, position: int) -> dict[str, int]:
        self._check_thread()
        total = self.token_bytes_at(position)
        return {"weights": 66_496_356, "head": 30_081_024, "kv": total - 96_577_380, "state": 0, "total": total}

    def token_bytes_at(self, position: int) -> int:
        return 96_577_380 + (position + 1) * 23040

    def measure_bubbles(self, position: int) -> BubbleReport:
        """Half again the lower bound, well below the upper one."""
        self._check_thread()
        timing = self.make_timing(STAMP_EVERY - 1, (self.mode, self.fusion, self.barriers), False)
        clean = self.make_timing(1, (self.mode, self.fusion, self.barriers), False)
        assert timing.gpu_total_us and clean.gpu_total_us
        bubbles_us = self._bubbles_us(timing.barrier_count)
        report = BubbleReport(
            position=position,
            passes=("qkv",) if self.fusion else (),
            barriers=self.barriers,
            dispatches=timing.dispatches,
            barrier_count=timing.barrier_count,
            clean_gpu_us=clean.gpu_total_us,
            unordered_gpu_us=clean.gpu_total_us / 2,
            null_gpu_us=1.0,
            filled_gpu_us=clean.gpu_total_us,
            repeated_gpu_us=clean.gpu_total_us * 1.5,
            empty_chain_gpu_us=1.0,
            empty_gpu_us=1.0,
            lower_us=bubbles_us / 1.5,
            upper_us=bubbles_us * 1.5,
            lower_error_us=2.0,
            upper_error_us=3.0,
            queued_gap_us=self.queued_gap_us,
        )
        if not self.has_clock:
            return report
        return replace(
            report,
            stamped_gpu_us=timing.gpu_total_us,
            kernels_us=timing.kernels_us,
            bubbles_us=timing.bubbles_us,
            bubbles_error_us=4.0,
            edges_us=timing.edges_us,
            pieces_us=timing.pieces_us,
        )

    def request_stamps(self) -> None:
        """Nothing to ask for: every 16th token is stamped."""

    def close(self) -> None:
        self._check_thread()
        self.closed = True

    def pieces(self) -> list[tuple[str, str]]:
        """Each token's text and thought."""
        on = self.switched[-1] if self.switched and self.switched[-1] is not None else self.model.thinking is not False
        thoughts = _tokens(self._thoughts) if on else []
        answer = _tokens(self._answer) * (1000 if self._repeat else 1)
        return [*(("", thought) for thought in thoughts), *((text, "") for text in answer)]

    def _check_thread(self) -> None:
        assert threading.get_ident() == self.owner, (
            "the engine was called from another thread than the one that opened it"
        )

    @property
    def _slow(self) -> float:
        return 60.0 if self.device.is_software else 1.0

    def _bubbles_us(self, barrier_count: int) -> float:
        return barrier_count * 1.7 * self._slow

    def make_timing(self, index: int, settings: tuple[str, bool, str], changed: bool) -> TokenTiming:
        """Times of an H200-like device (or one 60 times slower), which depend on the settings alone and the index."""
        mode, fusion, barriers = settings
        slow = self._slow
        dispatches = 151 if fusion else 301
        barrier_count = dispatches if barriers == "every" else dispatches - 60
        stamped = self.stamp_every > 0 and index % self.stamp_every == self.stamp_every - 1
        record = mode == "rerecord" or changed
        build_us, record_us = (500.0, 1700.0 + index % 7 * 20) if record else (0.0, 0.0)
        patch_us, submit_us, readback_us = 4.0, 22.0, 5.0
        kernels_us = (400.0 + index % 5 * 4) * slow * (1.06 if stamped else 1.0)
        bubbles_us = self._bubbles_us(barrier_count)
        idle_us = build_us + record_us + patch_us + submit_us + readback_us + 30.0
        shares = {"weights": 0.6, "kv": 0.05, "small": 0.15, "head": 0.2}
        pieces_us = {piece: kernels_us * share for piece, share in shares.items()}
        self.recordings += record
        return TokenTiming(
            index=index,
            mode=mode,
            fusion=fusion,
            barriers=barriers,
            rerecorded=record,
            dispatches=dispatches,
            barrier_count=barrier_count,
            period_us=idle_us + kernels_us + bubbles_us + 12.0,
            exposed_cpu_us=idle_us,
            build_us=build_us,
            record_us=record_us,
            patch_us=patch_us,
            submit_us=submit_us,
            wait_us=3.0,
            readback_us=readback_us,
            build_wall_us=build_us * 1.1,
            record_wall_us=record_us * 1.1,
            patch_wall_us=patch_us,
            submit_wall_us=submit_us,
            wait_wall_us=kernels_us + bubbles_us,
            readback_wall_us=readback_us,
            gpu_total_us=kernels_us + bubbles_us + EDGES_US,
            gpu_idle_before_us=idle_us,
            kernels_us=kernels_us if stamped and self.has_clock else None,
            bubbles_us=bubbles_us if stamped and self.has_clock else None,
            pieces_us=pieces_us if stamped and self.has_clock else None,
            measured_by="twin" if stamped else "clean",
            edges_us=EDGES_US if stamped and self.has_clock else None,
            bubbles_range_us=(bubbles_us * 0.8, bubbles_us * 1.3) if stamped and not self.has_clock else None,
        )


def _tokens(text: str) -> list[str]:
    return re.findall(r"\s*\S{1,4}|\s+$", text)


def opener(hold_loading: bool = False, fail: str | None = None, **settings: Any) -> Callable[..., FakeEngine]:
    """A stand-in for a bound Engine.open; ``made`` on it is the last engine opened.

    ``hold_loading``: half of the weights are loaded, and the rest once ``go_on`` on it is set.
    """
    go_on = threading.Event()

    def open_engine(progress: Callable[[str, int, int], None] | None = None) -> FakeEngine:
        report = progress or (lambda stage, done, total: None)
        report("device", 1, 1)
        steps = 20
        for stage, total in (("kernels", 40), ("weights", 98_000_000)):
            for step in range(1, steps + 1):
                report(stage, total * step // steps, total)
                while hold_loading and stage == "weights" and 2 * step == steps and not go_on.wait(0.01):
                    report(stage, total * step // steps, total)  # which also hears that the app is closing
        if fail is not None:
            raise EngineError(fail)
        open_engine.made = FakeEngine(**settings)  # type: ignore[attr-defined]
        return open_engine.made  # type: ignore[attr-defined,no-any-return]

    open_engine.go_on = go_on  # type: ignore[attr-defined]
    return open_engine
