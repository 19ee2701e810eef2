"""A dry run's model is the real one but for its contents."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from engine import EngineError, compile_and_record
from engine.dry_run import SHAPES
from engine.models import llama
from engine.program.matrix import Weight
from engine.vulkan.unbacked import UnbackedMemory
from engine.weights.gguf import GGUFFile
from engine.weights.load import Weights, load
from engine.weights.placeholder import placeholder_weights
from engine.weights.repack import LAYOUTS, Layout
from zincchat.catalogue import DEFAULT_MODEL


def nowhere() -> UnbackedMemory:
    return UnbackedMemory(None)  # type: ignore[arg-type] - it asks nothing of the device


def described(weights: Weights) -> dict[str, Any]:
    """Everything about weights but their addresses."""

    def facts(weight: Weight) -> tuple[Any, ...]:
        return weight.name, weight.type, weight.rows, weight.cols, weight.bytes, weight.quants.size, weight.scales.size

    names = {id(weight): name for name, weight in weights.matrices.items()}
    return {
        "matrices": {name: facts(weight) for name, weight in weights.matrices.items()},
        "vectors": {name: vector.size for name, vector in weights.vectors.items()},
        "stacks": {
            names[first]: ([facts(member) for member in stack.members], facts(stack.combined))
            for first, stack in weights.stacks.items()
        },
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_placeholders_are_what_loading_a_file_gives(tiny_path: Path, layout: Layout) -> None:
    with GGUFFile.open(tiny_path) as file:
        geometry = llama.geometry("tiny", file.metadata, file.tensors)
        specs = llama.tensors(geometry, file.tensors)
        loaded = load(file, specs, nowhere(), layout, lambda done, total: None)
        placed = placeholder_weights(file.tensors, specs, nowhere(), layout)
    assert described(placed) == described(loaded)
    assert described(placed)["stacks"]


def test_a_stack_lies_in_one_piece(tiny_path: Path) -> None:
    with GGUFFile.open(tiny_path) as file:
        specs = llama.tensors(llama.geometry("tiny", file.metadata, file.tensors), file.tensors)
        weights = placeholder_weights(file.tensors, specs, nowhere(), "gpu")
    for stack in weights.stacks.values():
        first, *others = stack.members
        assert first.quants.address == stack.combined.quants.address
        for before, after in zip((first, *others), others, strict=False):
            assert after.quants.address == before.quants.range[1]
            assert after.scales.address == before.scales.range[1]


def test_slices_lie_apart_and_cost_nothing() -> None:
    memory = nowhere()
    first, second = memory.allocate(5 << 30, constant=True), memory.allocate(1)
    assert second.address >= first.range[1]
    assert first.constant
    assert not second.constant
    assert memory.allocated_bytes == 0


def test_the_default_models_shape_is_that_of_its_file(smollm2_path: Path) -> None:
    shape = SHAPES["smollm2-135m-q4_1"]
    assert DEFAULT_MODEL == "smollm2-135m"
    geometry, tensors = shape.geometry_and_tensors("shape")
    with GGUFFile.open(smollm2_path) as file:
        real = llama.geometry("file", file.metadata, file.tensors)
        assert geometry.eps == pytest.approx(real.eps)
        untold = {"trained_context": geometry.trained_context, "eps": geometry.eps}
        assert geometry == dataclasses.replace(real, **untold)
        assert {name: (info.shape, info.type, info.size_bytes) for name, info in tensors.items()} == {
            name: (info.shape, info.type, info.size_bytes) for name, info in file.tensors.items()
        }


def test_an_unknown_shape_is_one_line_that_names_those_there_are() -> None:
    with pytest.raises(EngineError, match=r"unknown shape 'x'; there is smollm2-135m-q4_1, llama-8b-q4_k"):
        compile_and_record("x")
