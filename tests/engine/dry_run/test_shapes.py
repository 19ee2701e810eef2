"""A dry run's shapes are those of real models."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from engine import EngineError, compile_and_record
from engine.dry_run import SHAPES
from engine.models import llama
from engine.weights.gguf import GGUFFile
from zincchat.catalogue import DEFAULT_MODEL


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


def test_no_context_is_one_line() -> None:
    with pytest.raises(EngineError, match=r"^a context of 0 tokens is not possible: at least one$"):
        compile_and_record("llama-8b-q4_k", context=0)
