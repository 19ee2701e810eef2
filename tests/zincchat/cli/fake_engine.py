"""An engine without Vulkan or a model: the public names that the command line uses, with made-up figures.

Its tokens are the words of a fixed reply; a prompt is one id a character.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import engine as engine_package
from engine import DeviceRoom, EngineError, Sampling, TokenTiming, TokenTrace, Tuning
from tests.made_traces import made_trace

TRAINED_CONTEXT = 8192
REPLY = ("Hello", " ", "world", "!")
THOUGHTS: tuple[str, ...] = ()  # what comes before it, on a thinking model
MODEL_SAMPLING = Sampling(temperature=0.2, top_p=0.9)


@dataclass(frozen=True)
class FakeDevice:
    index: int = 0
    name: str = "Fake llvmpipe"
    kind: str = "cpu"
    driver: str = "fakepipe 1.0"
    api_version: str = "1.4.354"
    memory_bytes: int = 2 << 30
    is_software: bool = True


DEVICES = [FakeDevice(), FakeDevice(index=1, name="Fake GPU", kind="discrete", is_software=False)]


@dataclass(frozen=True)
class FakeModel:
    name: str = "Fake-1M"
    path: Path = Path("fake.gguf")
    file_bytes: int = 98_000_000
    quantisation: str = "Q4_1"
    vocab_size: int = 100
    thinking: bool | None = None


@dataclass(frozen=True)
class FakeToken:
    id: int
    text: str
    timing: TokenTiming
    trace: TokenTrace
    thought: str = ""
    thinking: bool = False


@dataclass(frozen=True)
class FakeStats:
    tokens: int
    kept: int
    seconds: float


@dataclass(frozen=True)
class FakeBubbles:
    lower_us: float = 200.0
    upper_us: float | None = 900.0
    within_brackets: bool | None = True
    stamps_us: float = 600.0
    stamps_error_us: float = 100.0

    def to_json(self) -> dict[str, Any]:
        return {"lower_us": self.lower_us, "upper_us": self.upper_us}


@dataclass(frozen=True)
class FakeHint:
    with_us: float = 8_800.0
    without_us: float = 8_888.0
    error_us: float = 44.0


def timing(index: int, mode: str, fusion: bool, barriers: str, stamped: bool = False) -> TokenTiming:
    """Figures that tell modes and stamped tokens apart: a clean token takes 10 ms, a stamped one 20."""
    rerecorded = mode == "rerecord"
    return TokenTiming(
        index=index,
        mode=mode,
        fusion=fusion,
        barriers=barriers,
        rerecorded=rerecorded,
        dispatches=10,
        barrier_count=8,
        period_us=20_000.0 if stamped else 10_000.0,
        exposed_cpu_us=50.0,
        build_us=30.0 if rerecorded else 0.0,
        record_us=20.0 if rerecorded else 0.0,
        patch_us=1.0,
        submit_us=4.0,
        wait_us=2.0,
        readback_us=3.0,
        build_wall_us=31.0 if rerecorded else 0.0,
        record_wall_us=21.0 if rerecorded else 0.0,
        patch_wall_us=1.5,
        submit_wall_us=4.5,
        wait_wall_us=9_000.0,
        readback_wall_us=3.5,
        gpu_total_us=11_000.0 if stamped else 8_800.0,
        gpu_idle_before_us=100.0,
        kernels_us=7_000.0 if stamped else None,
        bubbles_us=500.0 if stamped else None,
        pieces_us={"weights": 5_000.0, "kv": 500.0, "small": 1_000.0, "head": 500.0} if stamped else None,
        measured_by="twin" if stamped else "clean",
    )


class FakeSession:
    """Words of REPLY, over and over where the end token is ignored."""

    def __init__(self, owner: FakeEngine) -> None:
        self._owner = owner
        self.prefill_stats = FakeStats(0, 0, 0.0)
        self.finish_reason: str | None = None

    def prefill(self, ids: Sequence[int], cancel: Any = None, progress: Any = None) -> None:
        if len(ids) > self._owner.context:
            raise EngineError(f"the prompt has {len(ids)} tokens; the context holds {self._owner.context}")
        self._owner.prompts.append(list(ids))
        self.prefill_stats = FakeStats(len(ids), 0, len(ids) / 40)

    def generate(
        self, sampling: Sampling, max_tokens: int = 256, ignore_eos: bool = False, cancel: Any = None
    ) -> Iterator[FakeToken]:
        owner = self._owner
        owner.sampled_with.append(sampling)
        owner.fused_with.add(owner.fusion)
        self.finish_reason = "length"
        for index in range(max_tokens):
            if cancel is not None and cancel.is_set():
                self.finish_reason = "cancelled"
                return
            if index == len(THOUGHTS) + len(REPLY) and not ignore_eos:
                self.finish_reason = "stop"
                return
            if owner.mode == "rerecord":
                owner.recordings += 1
            stamped = bool(owner.stamp_every) and index % owner.stamp_every == owner.stamp_every - 1
            figures = timing(index, owner.mode, owner.fusion, owner.barriers, stamped)
            owner.log.append((owner.mode, owner.barriers, owner.stamp_every))
            trace = made_trace(figures)
            if index < len(THOUGHTS):
                yield FakeToken(index, "", figures, trace, THOUGHTS[index], thinking=True)
                continue
            word = (index - len(THOUGHTS)) % len(REPLY)
            yield FakeToken(word, REPLY[word], figures, trace)


class FakeEngine:
    """Stands in for ``engine.Engine``; ``opened`` holds the arguments of each call of ``open``."""

    opened: ClassVar[list[dict[str, Any]]] = []
    last: ClassVar[FakeEngine]
    last_takes: ClassVar[str]
    probe_gb_s = 9.7
    queued_gap_us = 13.0
    refused_modes: ClassVar[dict[str, str]] = {}
    refused_barriers: ClassVar[dict[str, str]] = {}
    usual_barriers: ClassVar[str] = "needed"
    tuning = Tuning("usual")

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.mode = settings["mode"]
        self.barriers = settings["barriers"] or self.usual_barriers
        self.fusion = settings["fusion"]
        self.context = settings["context"] or min(2048, TRAINED_CONTEXT)
        self.model = FakeModel()
        self.device = DEVICES[settings["device"] or 0] if not isinstance(settings["device"], str) else DEVICES[1]
        self.device_bytes = 150_000_000
        self.weight_bytes = 97_000_000
        self.recordings = 0
        self.stamp_every = 16
        self.sampling = MODEL_SAMPLING
        self.prompts: list[list[int]] = []
        self.sampled_with: list[Sampling] = []
        self.rendered: list[Any] = []
        self.thinking: list[bool | None] = []
        self.warm = False
        self.log: list[tuple[str, str, int]] = []
        self.fused_with: set[bool | tuple[str, ...]] = set()
        self.metered: list[tuple[str, bool | tuple[str, ...], int | None]] = []
        self.stamps_requested = 0
        self.closed = False

    @classmethod
    def open(
        cls,
        path: Path,
        device: int | str | None = None,
        context: int | None = None,
        mode: str = "reuse",
        fusion: bool = True,
        barriers: str | None = None,
        progress: Any = None,
        *,
        quantize: str | None = None,
        takes: str = "ids",
        tuning: bool | None = None,
    ) -> FakeEngine:
        settings = {"device": device, "context": context, "mode": mode, "fusion": fusion, "barriers": barriers}
        cls.last_takes = takes
        named = {"quantize": quantize, "tuning": tuning}
        cls.opened.append(
            {"path": path, **settings} | {key: value for key, value in named.items() if value is not None}
        )
        if isinstance(device, str) and device.lower() not in DEVICES[1].name.lower():
            raise EngineError(f"no device matches {device!r}; there are {', '.join(item.name for item in DEVICES)}")
        if progress is not None:
            progress("weights", 1, 1)
        cls.last = cls(path, settings)
        return cls.last

    def warm_up(self) -> None:
        assert not self.log, "a token ran cold"
        self.warm = True

    def __enter__(self) -> FakeEngine:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True

    def render(self, messages: list[dict[str, str]], thinking: bool | None = None) -> list[int]:
        self.rendered.append(messages)
        self.thinking.append(thinking)
        return self.encode("".join(message["content"] for message in messages))

    def encode(self, text: str) -> list[int]:
        return [ord(letter) % 100 for letter in text]

    def token_bytes(self, position: int | None = None) -> dict[str, int]:
        return {"weights": 90_000_000, "head": 6_000_000, "kv": 1_000_000, "state": 0, "total": 97_000_000}

    def measure_bubbles(self, position: int | None = None) -> FakeBubbles:
        self.metered.append((self.barriers, self.fusion, position))
        return FakeBubbles()

    def measure_submit_hint(self, position: int | None = None) -> FakeHint:
        return FakeHint()

    def request_stamps(self) -> None:
        self.stamps_requested += 1

    def session(self) -> FakeSession:
        return FakeSession(self)


def fake_room(device: int | str | None = None) -> DeviceRoom:
    """The GPU's room where one is asked for, else the software device's."""
    return DeviceRoom("Fake llvmpipe" if device is None else "Fake GPU", 2 << 30, device is None)


def install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the fake names in place of the engine's own; a bench's tokens take 10 ms each, whatever else runs."""
    clock = SimpleNamespace(perf_counter=partial(next, itertools.count(step=0.01)))
    monkeypatch.setattr("zincchat.bench.measure.time", clock)
    FakeEngine.opened = []
    monkeypatch.setattr(engine_package, "Engine", FakeEngine)
    monkeypatch.setattr(engine_package, "list_devices", lambda: list(DEVICES))
    monkeypatch.setattr(engine_package, "device_room", fake_room)
