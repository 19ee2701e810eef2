"""Kernels by kind: from hand-made spans, and what those of a real token must read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine import Engine, KernelSpan, Sampling, kernel_rates
from engine.decode.program import DecodeProgram
from engine.profile.timeline import Stamped
from tests.made_traces import made_op, made_trace
from tests.zincchat.cli.fake_engine import timing

GREEDY = Sampling(temperature=0.0)


def kernels_of(*kernels: tuple[str, str, int, float]) -> list[KernelSpan]:
    """A stamped token's: (name, type, bytes, us) of each kernel, one after the other."""
    ops: Any = [made_op(name, "weights", size, weight_type) for name, weight_type, size, _ in kernels]
    ends_ns = np.cumsum([us * 1e3 for *_, us in kernels])
    starts_ns = np.concatenate(([0.0], ends_ns[:-1]))
    program = DecodeProgram(ops, [True] * len(ops), len(ops))
    stamped = Stamped(program, np.stack((starts_ns, ends_ns), axis=1), 0.0, 1.0)
    return replace(made_trace(timing(1, "reuse", True, "needed", stamped=True)), stamped=stamped).kernels


def test_kinds_are_names_without_layers_and_types_of_weights() -> None:
    first = kernels_of(
        ("embed", "Q8_0", 100, 1.0),
        ("blk.0.ffn_down", "Q4_K", 40_000, 10.0),
        ("blk.1.ffn_down", "Q4_K", 40_000, 20.0),
        ("blk.2.ffn_down", "Q6_K", 60_000, 20.0),
        ("output", "Q6_K", 900_000, 100.0),
    )
    second = kernels_of(("blk.10.ffn_down", "Q4_K", 40_000, 40.0), ("blk.11.ffn_down", "Q4_K", 40_000, 80.0))
    clean = made_trace(timing(2, "reuse", True, "needed")).kernels
    rates = kernel_rates([first, clean, second], 20.0)
    assert [(rate.name, rate.weight_type, rate.count) for rate in rates] == [
        ("embed", "Q8_0", 0.5),
        ("ffn_down", "Q4_K", 2.0),
        ("ffn_down", "Q6_K", 0.5),
        ("output", "Q6_K", 0.5),
    ]
    down = rates[1]
    assert (down.time_us, down.bytes_moved) == (pytest.approx(30.0), 40_000)
    assert down.gb_s == pytest.approx((2.0 + 1.0) / 2)  # 40 kB in 20 and in 40 us
    assert down.probe_fraction == pytest.approx(1.5 / 20)
    assert kernel_rates([first], None)[0].probe_fraction is None


def test_a_kernel_shorter_than_the_clocks_tick_has_no_rate() -> None:
    (rate,) = kernel_rates([kernels_of(("norm", "", 100, 0.0))], 20.0)
    assert (rate.time_us, rate.gb_s, rate.probe_fraction) == (0.0, None, None)


def test_no_stamped_token_no_kinds() -> None:
    assert kernel_rates([[]], 20.0) == []


@pytest.fixture(scope="module", params=[None, False], ids=["", "gpu-kernels"])
def engine(tiny_path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    with Engine.open(tiny_path, context=1100, row_kernels=request.param) as opened:
        opened.request_stamps()
        opened.stamp_every = 2
        yield opened


@pytest.mark.parametrize(("mode", "fusion"), [("reuse", True), ("reuse", False), ("persistent", True)])
def test_a_tokens_kernels_read_its_bytes(engine: Engine, mode: str, fusion: bool) -> None:
    if mode in engine.refused_modes:
        pytest.skip(engine.refused_modes[mode])
    engine.fusion, engine.mode = fusion, mode
    session = engine.session()
    total, kv = {}, {}
    for prompt in (5, 509):  # across a bucket's end too
        session.prefill([(7 * index) % 300 for index in range(prompt)])
        for token in session.generate(GREEDY, max_tokens=9, ignore_eos=True):
            if token.trace.stamped is None:
                continue
            assert token.trace.position == prompt + token.timing.index - 1
            total[token.trace.position] = sum(kernel.bytes_moved for kernel in token.trace.kernels)
            kv[token.trace.position] = engine.token_bytes(token.trace.position)
    if not total:
        pytest.skip("the kernels of this device cannot read a clock")
    first = min(total)
    assert first < 509 <= max(total)
    for position, size in total.items():
        assert size >= kv[position]["total"]
        assert size - total[first] == kv[position]["kv"] - kv[first]["kv"]
