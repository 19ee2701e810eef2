"""Under barriers ``flags`` a kernel loads nothing before its wait that it waits for.

A software device runs dispatches one after another, so no kernel ever waits there. Here each is made to: what kernels
of the token have written by then is no number until it has waited for a while.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import closing

import numpy as np
import numpy.typing as npt
import pytest

from engine import FUSION_PASSES, Engine, Sampling
from engine.decode.program import Settings
from engine.decode.state import initial_state, pack_step
from engine.program import attend_division
from engine.program.attend_division import range_tokens
from engine.program.op import Attention, Op
from engine.program.schedule import Range
from engine.vulkan.commands import CommandBuffer
from engine.vulkan.memory import Slice
from engine.vulkan.pipelines import Kernel
from engine.vulkan.shaders import expand
from tests.engine.hf_to_gguf import hf_to_gguf
from tests.engine.tiny_runs import attends_by_matrices, random_ids
from tests.engine.weights.folder import change_config, copy

HELD_S = 0.01
PROMPT = 140
# where a range's first subgroup, the only one that is held, has this token and, but for the first, some before
POSITIONS = (0, 2, 130)
SAMPLING = Sampling(temperature=0.9, repeat_penalty=1.1, seed=1)
RELEASE = 1 << 20  # what the counter is waited for to reach
NAN = 0xFF  # as a byte of any float
Image = dict[Range, npt.NDArray[np.uint8]]


MATRICES, RANGES = "gemma3 by matrices", "gemma3 by matrices, more than a range each"


@pytest.fixture(
    scope="module", params=["qwen2", "gemma3", "window of 1", "qwen3_5", MATRICES, RANGES, "window of 1 by matrices"]
)
def engine(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """With a bias, windows and a gate; by kernels for GPUs, also those that attend where many tokens are seen."""
    folder, name = tmp_path_factory.mktemp("models"), str(request.param).partition(" by matrices")[0]
    model = copy("gemma3" if name == "window of 1" else name, folder)
    if name == "window of 1":
        change_config(model, sliding_window=1)
    path = hf_to_gguf(model, folder / "tiny.gguf")
    with (
        pytest.MonkeyPatch.context() as patch,
        Engine.open(path, context=256, row_kernels=False) as opened,
    ):
        if name != request.param:
            patch.setattr(attend_division, "_ALONE_TOKENS", 0)
        if request.param == RANGES:
            patch.setattr(attend_division, "_MULTIPROCESSORS", 1)
        if opened._runtime._resources.state.pointer is None:
            pytest.skip("this device's memory is not the host's")
        if name != request.param and not attends_by_matrices(opened):
            pytest.skip("this device has no cooperative matrices of a size that fits")
        yield opened
        opened._runtime._resources.flags.reset()


class Token:
    """The waiting kernels of a token at ``position``, to be run one by one."""

    def __init__(self, engine: Engine, passes: Sequence[str], position: int) -> None:
        runtime, ids = engine._runtime, random_ids(PROMPT)
        engine.session().prefill(ids)
        resources = runtime._resources
        other = (ids[position] + 1) % 320  # than the prompt had here: what is written differs from what was there
        state = initial_state(position, other, ids[:position])
        runtime.memory.write(resources.state, np.frombuffer(state, np.uint8))
        runtime.memory.write(runtime._slot.step, np.frombuffer(pack_step(SAMPLING), np.uint8))
        bucket = runtime.builder.bucket(position)
        program = runtime.builder.build(bucket, Settings("reuse", tuple(passes), "flags"), runtime._slot)
        self.ops, _ = resources.flags.recordable(program.ops, program.barriers, "flags")
        self._device, self._control = resources.device, resources.flags._control.host().view(np.uint32)
        self._memory = {item.range: item for op in self.ops for item in op.buffers if not item.constant}
        self._held: set[tuple[Kernel, int]] = set()
        self.written = {key: np.zeros(item.size, bool) for key, item in self._memory.items()}

    def image(self) -> Image:
        return {key: item.host().copy() for key, item in self._memory.items()}

    def restore(self, image: Image) -> None:
        for key, item in self._memory.items():
            item.host()[:] = image[key]

    def run(self, op: Op, late: Sequence[Slice] = (), held_s: float = 0.0) -> Image:
        """What is in memory after ``op``, held so long while what was written, and ``late``, are no numbers."""
        self._control[:2] = arrived = 0
        held = op.with_kernel(op.kernel, op.push[:8] + struct.pack("<II", RELEASE if held_s else 0, 1) + op.push[16:])
        image, constants = self.image(), [(item.host(), item.host().copy()) for item in late]
        with closing(CommandBuffer(self._device)) as commands:
            commands.record_all([held], [False])
            if held_s:
                for key, item in self._memory.items():
                    item.host()[self.written[key]] = NAN
                for view, _ in constants:
                    view[:] = NAN
            commands.submit()
            if held_s:
                time.sleep(held_s)
                self.restore(image)
                for view, data in constants:
                    view[:] = data
                arrived, self._control[0] = int(self._control[0]), RELEASE
            commands.wait()
        assert arrived == 0, f"{op.name} has arrived without waiting"
        assert self._control[0] == (RELEASE if held_s else 0) + op.groups[0] * op.groups[1]
        return self.image()

    def passes_held(self, op: Op) -> bool:
        """Run ``op``, and once more held if the first of its kind that may load early: whether it makes the same."""
        before, after, same = self.image(), self.run(op), True
        kind = (op.kernel, op.window if isinstance(op, Attention) else 0)
        if may_load_early(op) and kind not in self._held:
            self._held.add(kind)
            self.restore(before)
            same = equal(self.run(op, held_s=HELD_S), after)
        for key, written in self.written.items():
            written |= before[key] != after[key]
        return same


def may_load_early(op: Op) -> bool:
    """Whether its kernel says itself when it waits; others do before they begin."""
    return "#define OWN_AWAIT" in expand(op.kernel.name, ())


def equal(some: Image, others: Image) -> bool:
    return all(np.array_equal(data, others[key]) for key, data in some.items())


@pytest.mark.parametrize("passes", [(), FUSION_PASSES], ids=["unfused", "fused"])
def test_nothing_awaited_is_loaded_early(engine: Engine, passes: tuple[str, ...]) -> None:
    for position in POSITIONS:
        token = Token(engine, passes, position)
        for op in token.ops:
            assert token.passes_held(op), (op.name, op.kernel.label, position)
        assert any(map(may_load_early, token.ops))
        assert attend_division.sees_many(1) == any(op.kernel.name == "attend_matrices" for op in token.ops)


@pytest.mark.parametrize(
    ("engine", "kernel"),
    [
        *(("gemma3", name) for name in ("matvec_groups", "gate_up_groups", "attend_groups")),
        (MATRICES, "attend_matrices"),
    ],
    indirect=["engine"],
)
def test_what_is_loaded_early_shows(engine: Engine, kernel: str) -> None:
    """Weights, and keys of tokens before: as nobody writes them, they are loaded while the kernel is held."""
    token = Token(engine, FUSION_PASSES, POSITIONS[1])
    for op in token.ops:
        before, after = token.image(), token.run(op)
        if op.kernel.name == kernel:
            break
    early = op.buffers[1 if kernel.startswith("attend_") else 0]
    for held_s in (HELD_S, 0.1, 1.0):  # a busy machine may not have begun
        token.restore(before)
        if not equal(token.run(op, [early], held_s), after):
            return
    pytest.fail("not held")


@pytest.mark.parametrize("engine", ["gemma3"], indirect=True)
def test_what_has_nothing_to_do_waits_too(engine: Engine) -> None:
    """Attention's workgroups whose tokens are yet to come: nobody counts on them, but the count is of all."""
    runtime = engine._runtime
    if range_tokens(runtime._geometry.head_size, runtime._device.subgroup_size, False) >= engine.context:
        pytest.skip("all of the context is one range on this device")
    token, idle = Token(engine, FUSION_PASSES, POSITIONS[1]), 0
    for op in token.ops:
        before = token.image()
        token.run(op)
        if "attend" in op.kernel.name and op.groups[0] > 1:
            some = op.with_kernel(op.kernel, op.push)
            some.groups = (op.groups[0], 1, 1)  # else a device of two threads may not get to them
            token.restore(before)
            token.run(some, held_s=HELD_S)
            token.restore(before)
            token.run(op)
            idle += 1
    assert idle
