"""Which dispatches each architecture's layers become; that they keep the bits is tested where they run."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
from gguf import GGMLQuantizationType as Type

from engine.models import architecture
from engine.program.activations import ActivationBuffers, Activations
from engine.program.fusion import PASSES, PREFILL_PASSES, ROW_KERNEL_PASSES, fuse
from engine.program.nodes import Node
from engine.program.operands import Bias, Norm
from engine.vulkan.unbacked import UnbackedMemory
from engine.weights.gguf import GGUFFile
from engine.weights.load import allocate_weights
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf

EVERY_GPU_PASS = {
    "llama": "qkv_rope+norm attend_merged matvec_add gate_up+norm matvec_add",
    "qwen2": "qkv_rope+norm+bias attend_merged matvec_add gate_up+norm matvec_add",
    "qwen3": "matvec+norm norm_rope_store attend_merged matvec_add gate_up+norm matvec_add",
    "gemma3": "matvec+norm norm_rope_store attend_merged matvec norm_add gate_up_gelu+norm matvec norm_add",
    "smollm3": "qkv_rope+norm attend_merged matvec_add gate_up+norm matvec_add",
}
END = ["head_keys+norm"]


def fused(
    tmp_path: Path, name: str, passes: tuple[str, ...], types: Mapping[str, Type] | Type = Type.F32
) -> tuple[list[str], dict[str, list[Node]]]:
    """Before and behind the layers, and each layer's nodes, after ``passes`` over a tiny model."""
    memory = UnbackedMemory(SimpleNamespace())  # type: ignore[arg-type]
    with GGUFFile.open(hf_to_gguf(MODELS / name, tmp_path / f"{name}.gguf", types)) as file:
        model = architecture(file.path.name, file.metadata["general.architecture"])
        g = model.geometry(file.path.name, file.metadata, file.tensors)
        weights = allocate_weights(file.tensors, model.tensors(g, file.tensors), memory, "gpu")
    a = Activations(ActivationBuffers(memory, g, 1), 1)
    nodes = model.layers(g, weights, a) + model.head(g, weights, a)
    out = fuse(nodes, passes, weights.stacks, a.spans | weights.spans, g.eps)
    layers = {key: list(group) for key, group in groupby(out, key=lambda node: ".".join(node.name.split(".")[:2]))}
    first, *others = layers
    assert first == "embed"
    return [described(node) for key in others if key.startswith("output") for node in layers[key]], {
        key: layers[key] for key in others if key.startswith("blk.")
    }


def described(node: Node) -> str:
    """A node's kind, and what was fused into it."""
    more = {Norm: "+norm", Bias: "+bias"}
    return node.kind + "".join(sorted((more.get(type(item), "") for item in node.args), reverse=True))


@pytest.mark.parametrize(("name", "expected"), EVERY_GPU_PASS.items())
def test_every_pass(tmp_path: Path, name: str, expected: str) -> None:
    end, layers = fused(tmp_path, name, PASSES)
    assert end == END
    for nodes in layers.values():
        assert [described(node) for node in nodes] == expected.split()
    if name == "smollm3":  # the fourth of five has no RoPE
        assert [nodes[0].args[4] for nodes in layers.values()] == [0, 0, 0, None, 0]
    if name == "gemma3":  # the sixth of seven is global
        assert [nodes[1].args[4] for nodes in layers.values()] == [1, 1, 1, 1, 1, 0, 1]


@pytest.mark.parametrize(("name", "expected"), [
    ("qwen2", "norm matvec+bias rope_store attend_merged matvec_add norm gate_up matvec_add"),
    ("gemma3", "norm matvec norm_rope_store attend_merged matvec norm_add norm gate_up_gelu matvec norm_add"),
])  # fmt: skip
def test_the_passes_of_software_devices(tmp_path: Path, name: str, expected: str) -> None:
    _, layers = fused(tmp_path, name, ROW_KERNEL_PASSES)
    for nodes in layers.values():
        assert [described(node) for node in nodes] == expected.split()


@pytest.mark.parametrize(("name", "expected"), [
    ("qwen2", "norm matvec+bias matvec+bias matvec+bias rope_store attend matvec_add"),
    ("gemma3", "norm matvec matvec matvec norm_rope_store attend matvec norm_add"),
])  # fmt: skip
def test_the_passes_of_prompts(tmp_path: Path, name: str, expected: str) -> None:
    _, layers = fused(tmp_path, name, PREFILL_PASSES)
    for nodes in layers.values():
        assert [described(node) for node in nodes][: len(expected.split())] == expected.split()


def test_a_stack_of_some_of_the_projections(tmp_path: Path) -> None:
    """Of another type than q and k, v stays alone."""
    types = {"*": Type.Q4_0, "attn_v": Type.Q8_0}
    _, layers = fused(tmp_path, "qwen2", PASSES, types)
    for nodes in layers.values():
        kinds = ["matvec+norm+bias", "matvec+norm+bias", "rope_store", "attend_merged"]
        assert [described(node) for node in nodes][:4] == kinds
        assert [node.args[0].rows for node in nodes[:2]] == [96, 32]


@pytest.mark.parametrize("missing", ["bias", "qkv"])
def test_biases_without_one_of_their_passes(tmp_path: Path, missing: str) -> None:
    _, layers = fused(tmp_path, "qwen2", tuple(name for name in PASSES if name != missing))
    expected = {
        "bias": ["matvec+norm", "bias", "rope_store"],  # no kernel would add them before RoPE
        "qkv": ["qkv_rope+norm+bias", "attend_merged", "matvec_add"],
    }
    for nodes in layers.values():
        assert [described(node) for node in nodes][:3] == expected[missing]


def test_gated_delta_net_and_gated_attention(tmp_path: Path) -> None:
    """Five steps a DeltaNet layer: projections, whose norm all of them take, are one step however many they are."""
    end, layers = fused(tmp_path, "qwen3_5", PASSES)
    assert end == END
    projections = {"delta": "matvec+norm", "attention": "matvec+norm matvec+norm norm_rope_store"}
    others = {"delta": "delta_step", "attention": "attend_gated"}
    for number, nodes in enumerate(layers.values()):
        kind = "attention" if number == 3 else "delta"
        expected = f"{projections[kind]} {others[kind]} matvec_add gate_up+norm matvec_add"
        found = [described(node) for node in nodes]
        if kind == "delta":  # four value heads' alpha and beta are too few rows to be stacked
            assert found[:3] == ["matvec+norm"] * 3 and nodes[0].args[0].rows == 256 + 128
            del found[:2]
        assert found == expected.split()


def test_a_norm_that_others_read_too_stays(tmp_path: Path) -> None:
    _, layers = fused(tmp_path, "qwen3_5", ("norm",))
    for nodes in layers.values():
        assert "norm" not in [node.kind for node in nodes]  # read by projections alone, apart or together
    nodes = next(iter(layers.values()))
    x, y, weight = (object() for _ in range(3))
    other = Node("add", "other", (x, y))
    run = [Node("norm", "norm", (x, weight, y)), nodes[0]._replace(args=(nodes[0].args[0], y, x)), other]
    assert fuse(run, ("norm",), {}, {}) == run
