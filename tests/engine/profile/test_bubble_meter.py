"""The bubble meter on programs of known shape: it must order and size them rightly.

Every statement compares programs with each other, with room for a busy machine; each needs one good try of twenty.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.decode.flags import Flags, unavailable
from engine.decode.program import DecodeProgram, Settings
from engine.profile.bubble_meter import BubbleMeter
from engine.profile.bubble_report import BubbleReport
from engine.profile.interleave import Rounds
from engine.profile.kernel_clock import kernel_clock
from engine.program.op import Op
from engine.vulkan import shaders
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.shader_path import shader_root
from tests.engine.gpu import Gpu

TRIES = 20
SHORT, LONG = 50, 5000  # rounds of the spin kernel
SETTINGS = Settings("reuse", (), "every")


class Bench:
    """A meter over chains of spin kernels."""

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu
        self.clock = kernel_clock(gpu.device, gpu.memory, gpu.kernels)
        self.flags = Flags(gpu.device, gpu.memory, gpu.kernels)
        self.meter = BubbleMeter(gpu.device, gpu.memory, gpu.kernels, self.clock, self.flags)
        self.wide = 64 if gpu.device.is_cpu else 1 << 15
        self.words = gpu.memory.allocate(self.wide * 4 * gpu.device.subgroup_size)
        self.before = CommandBuffer(gpu.device)
        self.before.begin()
        self.before.fill(self.words, 1)
        self.before.end()

    def measure(
        self, count: int, rounds: int, groups: int = 1, chained: bool = True, policy: str = "every"
    ) -> BubbleReport:
        """``count`` dispatches of ``groups`` workgroups; chained ones have a barrier between them."""
        op = Op("spin", self.gpu.kernels.get("spin"), (self.words,), (rounds,), (groups, 1, 1))
        barriers = [chained and index > 0 for index in range(count)]
        program = DecodeProgram([op] * count, barriers, sum(barriers))
        settings = SETTINGS._replace(barriers=policy)
        return self.meter.measure(program, self.before, 0, settings, 0.0, Rounds(4, 8, 1.0))

    def others_us(self, report: BubbleReport) -> float:
        """What other work on a software device's processors may add to its bubbles."""
        return 0.25 * report.clean_gpu_us if self.gpu.device.is_cpu else 0.0

    def close(self) -> None:
        self.before.close()


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    root = tmp_path_factory.mktemp("shaders")
    (root / "include").symlink_to(shader_root() / "include")
    for source in (shader_root() / "nothing.comp", Path(__file__).parent / "spin.comp"):
        (root / source.name).write_text(source.read_text())
    with pytest.MonkeyPatch.context() as patch, Gpu() as gpu:
        patch.setattr(shaders, "shader_root", lambda: root)
        opened = Bench(gpu)
        if opened.clock is None:
            pytest.skip("kernels of this device have no clock")
        yield opened
        opened.close()


def some_try(holds: Callable[[], list[bool]]) -> None:
    """Each statement in the list that ``holds`` measures is true on at least one of the tries."""
    tries = []
    for _ in range(TRIES):
        tries.append(holds())
        if all(any(statement) for statement in zip(*tries, strict=True)):
            return
    pytest.fail(f"statements that held, by try: {tries}")


def test_more_barriers_are_more_bubbles(bench):
    def holds():
        few, many = bench.measure(16, SHORT), bench.measure(96, SHORT)
        return [
            3 * few.bubbles_us < many.bubbles_us < 12 * few.bubbles_us,
            3 * few.lower_us < many.lower_us < 12 * few.lower_us,
            few.upper_us < many.upper_us,
        ]

    some_try(holds)


def test_longer_kernels_are_longer_and_their_bubbles_are_not(bench):
    def holds():
        short, long = bench.measure(32, SHORT), bench.measure(32, LONG)
        return [
            long.kernels_us > 10 * short.kernels_us,
            long.bubbles_us < 4 * short.bubbles_us,
            long.bubbles_us / long.kernels_us < short.bubbles_us / short.kernels_us / 5,
        ]

    some_try(holds)


def test_wider_kernels_are_longer_and_their_bubbles_are_not(bench):
    def holds():
        narrow, wide = bench.measure(16, LONG), bench.measure(16, LONG, bench.wide)
        return [
            wide.kernels_us > 4 * narrow.kernels_us,
            wide.bubbles_us < 8 * narrow.bubbles_us + bench.others_us(wide),
        ]

    some_try(holds)


def test_independent_kernels_need_no_drain(bench):
    def holds():
        chained, independent = bench.measure(64, SHORT), bench.measure(64, SHORT, chained=False)
        return [
            independent.lower_us == 0 < chained.lower_us,
            independent.bubbles_us < 1.5 * chained.bubbles_us,
            independent.clean_gpu_us < 1.5 * chained.clean_gpu_us,
        ]

    some_try(holds)


@pytest.mark.parametrize(("count", "rounds", "wide"), [(64, SHORT, False), (32, LONG, False), (8, LONG, True)])
def test_bubbles_lie_between_their_bounds_and_the_terms_meet(bench, count, rounds, wide):
    def holds():
        report = bench.measure(count, rounds, bench.wide if wide else 1)
        terms = report.kernels_us + report.bubbles_us + report.edges_us
        others_us = bench.others_us(report)
        return [
            report.within_brackets
            or report.lower_us - others_us < report.bubbles_us < report.upper_us + report.upper_error_us + others_us,
            report.upper_us < report.clean_gpu_us + report.upper_error_us,
            report.upper_error_us < report.clean_gpu_us,
            abs(terms - report.stamped_gpu_us) < 0.1 * report.stamped_gpu_us,
            abs(report.instrument_cost_fraction) < 0.25,
            abs(report.clean_gpu_us + report.stamps_us - terms) < 0.1 * terms,
            0 < report.edges_us < 0.5 * report.stamped_gpu_us,
        ]

    some_try(holds)


def test_waits_in_memory_have_a_lower_bound_alone(bench):
    if (reason := unavailable(bench.gpu.device)) is not None:
        pytest.skip(reason)

    def holds():
        few, many = (bench.measure(count, SHORT, policy="flags") for count in (16, 96))
        assert few.upper_us is few.upper_error_us is few.within_brackets is many.within_brackets is None
        assert few.to_json()["upper_us"] is None and few.barrier_count == 15
        terms = many.kernels_us + many.bubbles_us + many.edges_us
        return [
            3 * few.lower_us < many.lower_us < 12 * few.lower_us,
            3 * few.bubbles_us < many.bubbles_us < 12 * few.bubbles_us,
            many.above_lower or many.lower_us < many.bubbles_us + bench.others_us(many),
            abs(terms - many.stamped_gpu_us) < 0.1 * many.stamped_gpu_us,
        ]

    some_try(holds)
    assert not bench.flags.stuck


def test_the_upper_bound_nears_the_bubbles_where_kernels_fill_the_device(bench):
    def holds():
        wide = bench.measure(8, LONG, bench.wide)
        return [wide.upper_us < wide.bubbles_us + 0.5 * wide.kernels_us + bench.others_us(wide)]

    some_try(holds)


def test_without_a_clock_there_is_the_range_alone(bench):
    blind = BubbleMeter(bench.gpu.device, bench.gpu.memory, bench.gpu.kernels, None, bench.flags)
    bench.meter, seeing = blind, bench.meter
    try:
        report = bench.measure(16, SHORT)
    finally:
        bench.meter = seeing
    assert report.bubbles_us is report.kernels_us is report.within_brackets is report.stamps_us is None
    assert report.lower_us > 0 and report.to_json()["upper_us"] == report.upper_us


def test_each_run_finds_its_own_state(bench):
    """The buffer that runs before each program makes every run the same, warm-up or not."""
    bench.measure(3, SHORT)
    once = [np.uint32(1)]
    for _ in range(3):
        word = once[-1]
        for i in range(SHORT):
            word = np.uint32((int(word ^ (word >> np.uint32(15))) * 0x2C1B3C6D + i) & 0xFFFFFFFF)
        once.append(word)
    assert bench.gpu.read(bench.words, np.uint32)[0] in once  # one chain of 3 at most, not the sum of all runs
