"""A token with some of the layers: which they are, that it has every dispatch of the whole, and what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gguf import GGMLQuantizationType as T

from engine import FUSION_PASSES, Engine
from engine.decode.program import DecodeProgram, Settings
from engine.profile.row_trials import within, workloads
from engine.profile.short_token import choose_layers, layer_of, shortened
from engine.program.operands import Weight
from tests.engine.hf_to_gguf import MODELS
from tests.engine.tiny_model import write_tiny_llama

LAYERS = 32
LLAMA = frozenset({"norm", "qkv", "output", "gate_up", "down"})
# as llama.cpp's Q4_K_M mixes: more bits in the first and last eighths, and in every third layer between
MORE_BITS = [layer < 4 or layer >= 28 or layer % 3 == 0 for layer in range(LAYERS)]
Q4_K_M = {layer: LLAMA - {"down"} | {"down Q6_K"} if more else LLAMA for layer, more in enumerate(MORE_BITS)}
QWEN35 = {
    layer: frozenset({"qkv", "store", "attend", "down"} if layer % 4 == 3 else {"stack", "delta", "down"})
    for layer in range(LAYERS)
}
GEMMA = {layer: LLAMA | {"attend all" if layer % 6 == 5 else "attend window"} for layer in range(26)}
MIXES = {
    "one kind": dict.fromkeys(range(LAYERS), LLAMA), "Q4_K_M": Q4_K_M, "Qwen3.5": QWEN35, "Gemma": GEMMA,
    "one odd layer": {**dict.fromkeys(range(LAYERS), LLAMA), 17: LLAMA | {"bias"}},
}  # fmt: skip


@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("count", [-3, 0, 1, 2, 5, 8, 13, 26])
def test_the_layers_that_stay_are_no_more_than_are_needed_and_spread(mix: str, count: int) -> None:
    parts = MIXES[mix]
    kept = choose_layers(parts, count)
    least = 1 if mix in ("one kind", "one odd layer") else 2
    assert len(kept) == max(count, least) and kept <= parts.keys()
    assert frozenset().union(*(parts[layer] for layer in kept)) == frozenset().union(*parts.values())
    # nowhere do more than a few layers' worth go unrepresented
    gaps = [after - before for before, after in zip(sorted(kept), sorted(kept)[1:], strict=False)]
    assert count < 8 or max(gaps) <= 3 * len(parts) / count


@pytest.mark.parametrize("mix", ["Q4_K_M", "Qwen3.5", "Gemma"])
def test_of_each_kind_stays_its_share(mix: str) -> None:
    parts = MIXES[mix]
    for count in range(4, len(parts)):
        kept = choose_layers(parts, count)
        for kind in set(parts.values()):
            wanted = count * list(parts.values()).count(kind) / len(parts)
            assert abs(sum(parts[layer] == kind for layer in kept) - wanted) <= 1


def test_one_layer_with_the_parts_of_two_others_stands_for_both() -> None:
    parts = {0: frozenset("a"), 1: frozenset("b"), 2: frozenset("ab"), 3: frozenset("a")}
    assert choose_layers(parts, 0) == {2}
    assert choose_layers(parts, 9) == {0, 1, 2, 3}


def made_up(names: Sequence[str], bytes_each: int = 100) -> list[Any]:
    return [
        SimpleNamespace(name=name, kernel=name.rpartition(".")[2], groups=1, buffers=(), bytes_at=lambda _: bytes_each)
        for name in names
    ]


BLOCKS = [f"blk.{layer}.{name}" for layer in range(10) for name in ("a", "a_norm+b")]
NAMES = ["embed.0", *BLOCKS, "output", "sample_pick"]


def test_all_but_layers_stays_and_bytes_say_how_many_of_these() -> None:
    program = DecodeProgram(made_up(NAMES), [index > 0 for index in range(len(NAMES))], len(NAMES) - 1)
    for share, layers in ((0.0, 1), (3 / 23, 1), (9 / 23, 3), (8.9 / 23, 2), (22.9 / 23, 9), (1.0, 10), (7.0, 10)):
        short = shortened(program, share, 5)
        names = [op.name for op in short.ops]
        assert len(names) == 3 + 2 * layers and names == [name for name in NAMES if name in names]
        assert names[0] == "embed.0" and names[-2:] == ["output", "sample_pick"]
        assert short.barrier_count == sum(short.barriers) == len(names) - 1
    without = DecodeProgram(made_up(["embed", "output"]), [False, True], 1)
    assert shortened(without, 0.0, 5) is without


def test_what_goes_leaves_its_barriers() -> None:
    names = ["embed", "blk.0.a", "blk.0.b", "blk.1.a", "blk.1.b", "output"]
    program = DecodeProgram(made_up(names), [False, True, False, True, False, False], 2)
    short = shortened(program, 0.0, 0)
    assert [op.name for op in short.ops] == ["embed", "blk.0.a", "blk.0.b", "output"]
    assert short.barriers == [False, True, False, True] and short.barrier_count == 2


def tensors_of(opened: Engine) -> list[Weight]:
    builder = opened._runtime.builder
    found = [item for node in builder.nodes() for item in node.args if isinstance(item, Weight)]
    return [*found, *(stack.combined for stack in builder._stacks.values())]


@pytest.mark.parametrize("name", sorted(path.parent.name for path in MODELS.glob("*/config.json")))
def test_of_every_architecture_no_matrix_and_no_kernel_is_lost(name: str) -> None:
    """And what is of a layer is known by its name, whatever is fused."""
    with Engine.open(MODELS / name, context=64, row_kernels=False, tuning=False, takes="ids") as opened:
        runtime, tensors = opened._runtime, tensors_of(opened)
        for passes in (runtime.offered_passes, ()):
            program = runtime.builder.build(64, Settings("reuse", passes, "needed"), runtime._slot)
            others = {op.name.partition("+")[0] for op in program.ops if layer_of(op) is None}
            assert others <= {"embed", "output_norm", "output", "sample_scan", "sample_pick"}
            assert {layer_of(op) for op in program.ops} - {None} == set(range(runtime._geometry.layers))
            short = shortened(program, 0.0, 20)
            assert {op.kernel for op in short.ops} == {op.kernel for op in program.ops}
            works = workloads(program.ops, tensors)
            assert works and [work.matrix for work in works] == [each.matrix for each in within(works, short.ops)]
            assert {work.matrix for work in workloads(short.ops, tensors)} == {work.matrix for work in works}
            assert shortened(program, 1.0, 20) is program


def test_of_layers_alike_one_stays(tmp_path: Path) -> None:
    more = {f"blk.{layer}.ffn_down": T.Q8_0 for layer in (0, 3, 5)}
    path = write_tiny_llama(tmp_path / "m.gguf", layers=6, types={"*": T.Q4_1, "token_embd": T.Q8_0, **more})
    with Engine.open(path, context=64, row_kernels=False, tuning=False, fusion=FUSION_PASSES) as opened:
        runtime = opened._runtime
        program = runtime.builder.build(64, Settings("reuse", FUSION_PASSES, "needed"), runtime._slot)
        assert {layer_of(op) for op in shortened(program, 0.0, 20).ops} == {None, 0, 4}
