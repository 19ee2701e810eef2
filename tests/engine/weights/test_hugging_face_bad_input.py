"""Folders with something wrong in them: one line that names the model and says what."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.errors import EngineError
from engine.models import llama
from engine.weights.load import check_tensors
from engine.weights.open_model import open_model
from engine.weights.quantise import QUANTISATIONS
from tests.engine.hf_to_gguf import MODELS
from tests.engine.weights.folder import Tensors, change_config, change_tensors, copy


def refused(folder: Path, quantize: str | None = None) -> str:
    """The line that opening it, and asking it for the llama's tensors, ends with."""
    with pytest.raises(EngineError) as caught, open_model(folder, quantize) as source:
        geometry = llama.geometry(source.path.name, source.metadata, source.tensors)
        check_tensors(source, llama.tensors(geometry, source.tensors))
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "this folder has no config.json; give a GGUF file or a Hugging Face model's folder"),
        ("{", "config.json is not JSON at line 1"),
        ("[" * 100_000, "config.json is not JSON"),
        ("[]", "config.json must hold a JSON object"),
        ("{}", "config.json states no model_type; there is llama, mistral, qwen2, qwen3, qwen3_5"),
        ('{"model_type": "mamba"}', "model type 'mamba' is not supported; there is llama"),
        ('{"model_type": ["llama"]}', "is not supported; there is llama"),
        ('{"model_type": "llama"}', "config.json lacks num_attention_heads"),
    ],
)
def test_a_config_that_is_none(tmp_path: Path, content: str | None, part: str) -> None:
    folder = copy("llama", tmp_path)
    (folder / "config.json").unlink()
    if content is not None:
        (folder / "config.json").write_text(content)
    message = refused(folder)
    assert message.startswith("llama: ")
    assert part in message


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"hidden_size": "64"}, "hidden_size is '64' in config.json; it must be a whole number"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0 in config.json; it must be a whole number above 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True in config.json"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps is 'small' in config.json; it must be a number"),
        ({"rms_norm_eps": float("nan")}, "rms_norm_eps is nan in config.json; it must be a number"),
        (
            {"rope_theta": 10**400},
            "rope_theta is 1000000000000000000000000000000000000... in config.json; it must be a",
        ),
        ({"rope_theta": 0}, "rope_theta is 0 in config.json; it must be between 1 and 1e12"),
        ({"vocab_size": 10**9}, "vocab_size is 1000000000 in config.json; it must be 16777216 at most"),
        ({"num_key_value_heads": 10**6}, "num_key_value_heads is 1000000 in config.json; it must be 1024 at most"),
        ({"hidden_size": 10**6}, "an attention head has 250000 elements; it must be an even number, 512 at most"),
        ({"head_dim": 15}, "an attention head has 15 elements; it must be an even number"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu' in config.json; only silu is supported"),
        (
            {"rope_scaling": {"type": "yarn"}},
            "RoPE scaling 'yarn' in config.json is not supported; there is linear and",
        ),
        ({"rope_scaling": 7}, "rope_scaling is 7 in config.json; it must be an object"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "config.json lacks factor"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised with awq, which is not supported; take the"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings is 'no' in config.json; it must be true or false"),
        (
            {"tie_word_embeddings": False},
            "lm_head.weight is missing, and tie_word_embeddings in config.json is not true",
        ),
        ({"vocab_size": 321}, "model.embed_tokens.weight has 320 rows; by config.json the vocabulary has 321"),
        ({"head_dim": 24}, "k_proj.weight is (32, 64); by config.json it has 48 rows"),
        ({"intermediate_size": 128}, "gate_proj.weight is (96, 64), config.json says (128, 64)"),
        ({"num_hidden_layers": 2}, "tensor model.layers.2.input_layernorm.weight has no place in the model"),
        ({"num_hidden_layers": 4}, "tensor blk.3.attn_norm.weight is missing"),
    ],
)
def test_a_config_that_does_not_fit(tmp_path: Path, values: dict[str, Any], part: str) -> None:
    folder = copy("llama", tmp_path)
    change_config(folder, **values)
    assert part in refused(folder)


@pytest.mark.parametrize(
    ("name", "values", "part"),
    [
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window is True in config.json; only false is supported"),
        ("smollm3", {"no_rope_layers": [1, 0, 1, 1, 1]}, "no_rope_layers is"),
        ("smollm3", {"no_rope_layers": 1}, "no_rope_layers is 1 in config.json"),
        ("smollm3", {"no_rope_layers": [1, 1, 1, 0]}, "no_rope_layers is [1, 1, 1, 0] in config.json"),
        ("gemma3", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0 in config.json; it must be above 0"),
        (
            "gemma3",
            {"rope_parameters": {"sliding_attention": {"rope_type": "linear"}}},
            "sliding_attention: rope_type is 'linear' in config.json; only default is supported",
        ),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0 in config.json; only none"),
        ("gemma3", {"layer_types": ["sliding_attention"]}, "it must be a list of 7 kinds, one a layer"),
        ("qwen3_5", {"layer_types": ["full_attention"] + ["linear_attention"] * 3}, "at a fixed interval"),
        ("qwen3_5", {"linear_num_value_heads": 3}, "linear_num_value_heads is 3 in config.json; it must be a multiple"),
        (
            "qwen3_5",
            {"linear_value_head_dim": 10**6},
            "linear_value_head_dim is 1000000 in config.json; it must be 512",
        ),
        ("qwen3_5", {"linear_num_value_heads": 10**6}, "linear_num_value_heads is 1000000 in config.json; it must be"),
        ("qwen3_5", {"rope_parameters": None, "partial_rotary_factor": 1e308}, "partial_rotary_factor is 1e+308 in"),
        ("qwen3_5", {"rope_parameters": {"mrope_section": 4}}, "mrope_section is 4 in config.json; it must be a list"),
        ("qwen3_5", {"attn_output_gate": False}, "attn_output_gate is False in config.json; only true is supported"),
    ],
)
def test_what_an_architecture_lacks(tmp_path: Path, name: str, values: dict[str, Any], part: str) -> None:
    folder = copy(name, tmp_path)
    change_config(folder, **values)
    assert part in refused(folder)


def edited(change: Callable[[Tensors], Tensors | None]) -> Callable[[Path], object]:
    return lambda folder: change_tensors(folder / "model.safetensors", change)


def of_type(dtype: str) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        item = tensors["model.layers.1.mlp.up_proj.weight"]
        item["dtype"], item["data"] = dtype, bytes(96 * 64)

    return change


def of_shape(name: str, *shape: int) -> Callable[[Tensors], None]:
    return lambda tensors: tensors[name].update(shape=list(shape))


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (
            lambda folder: (folder / "model.safetensors").unlink(),
            "no model.safetensors or model.safetensors.index.json",
        ),
        (
            lambda folder: (folder / "model.safetensors").rename(folder / "pytorch_model.bin"),
            "it has pytorch_model.bin, a PyTorch file, which is not read",
        ),
        (
            edited(lambda tensors: {**tensors, "norm.weight": dict(tensors["model.norm.weight"])}),
            "norm.weight are the same one of the model",
        ),
        (
            lambda folder: cut(folder / "model.safetensors", -100),
            "model.safetensors is damaged or cut short (incomplete",
        ),
        (lambda folder: cut(folder / "model.safetensors", 300), "model.safetensors is damaged or cut short (invalid"),
        (lambda folder: cut(folder / "model.safetensors", 0), "model.safetensors is damaged or cut short (header"),
        (
            lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1"),
            "model.safetensors is damaged or cut short",
        ),
        (
            edited(of_type("I8")),
            "model.layers.1.mlp.up_proj.weight is I8, which is not supported; there is F32, F16, BF16",
        ),
        (edited(of_shape("model.norm.weight", 8, 8)), "model.norm.weight is (8, 8), config.json says (64,)"),
        (
            edited(of_shape("model.layers.0.self_attn.k_proj.weight", 64, 32)),
            "is (64, 32); by config.json it has 32 rows",
        ),
        (
            edited(of_shape("model.layers.0.mlp.up_proj.weight", 2, 3, 1024)),
            "(2, 3, 1024), which is no vector or matrix",
        ),
        (
            edited(lambda tensors: {**tensors, "model.layers.0.mlp.experts.weight": tensors["model.norm.weight"]}),
            "tensor model.layers.0.mlp.experts.weight is none that a llama model has",
        ),
        (
            edited(lambda tensors: {**tensors, "model.layers.0.self_attn.v_proj.bias": tensors["model.norm.weight"]}),
            "attn_v.bias",
        ),
        (lambda folder: (folder / "generation_config.json").write_text("5"), "generation_config.json must hold"),
    ],
)
def test_damaged_files(tmp_path: Path, damage: Callable[[Path], object], part: str) -> None:
    folder = copy("llama", tmp_path)
    damage(folder)
    message = refused(folder)
    assert message.startswith("llama: ")
    assert part in message


def cut(path: Path, size: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:size])


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda index: index["weight_map"].pop("model.norm.weight"), "has tensor model.norm.weight, which"),
        (
            lambda index: index["weight_map"].update({"model.layers.7.x": "model-00001-of-00003.safetensors"}),
            "has tensor model.layers.7.x in model-00001-of-00003.safetensors, which lacks it",
        ),
        (
            lambda index: index["weight_map"].update({"model.norm.weight": "model-00001-of-00003.safetensors"}),
            "has tensor model.norm.weight in model-00001-of-00003.safetensors, but it is in",
        ),
        (
            lambda index: index["weight_map"].update({"model.norm.weight": "model-00004-of-00003.safetensors"}),
            "model-00004-of-00003.safetensors is missing: download the model again",
        ),
        (
            lambda index: index["weight_map"].update({"model.norm.weight": "../x.safetensors"}),
            "which is no file's name",
        ),
        (lambda index: index["weight_map"].update({"model.norm.weight": 3}), "which is no file's name"),
        (lambda index: index["weight_map"].update({"model.norm.weight": "\ud800"}), "which is no file's name"),
        (lambda index: index["weight_map"].update({"model.norm.weight": ""}), "which is no file's name"),
        (lambda index: index.update(weight_map=[]), "has no weight_map of tensors"),
    ],
)
def test_an_index_that_disagrees_with_its_shards(tmp_path: Path, change: Callable[[Any], object], part: str) -> None:
    folder = copy("llama3", tmp_path)
    path = folder / "model.safetensors.index.json"
    index = json.loads(path.read_text())
    change(index)
    path.write_text(json.dumps(index))
    message = refused(folder)
    assert message.startswith("llama3: ")
    assert part in message


def test_a_shard_that_is_missing(tmp_path: Path) -> None:
    folder = copy("llama3", tmp_path)
    (folder / "model-00002-of-00003.safetensors").unlink()
    assert refused(folder) == "llama3: model-00002-of-00003.safetensors is missing: download the model again"


def test_shards_with_the_same_tensor(tmp_path: Path) -> None:
    folder = copy("llama3", tmp_path)
    (folder / "model-00002-of-00003.safetensors").write_bytes(
        (folder / "model-00001-of-00003.safetensors").read_bytes()
    )
    assert re.search(r"is in model-00001\S+ and in model-00002", refused(folder))


def test_a_file_that_is_cut_short_while_it_is_read(tmp_path: Path) -> None:
    folder = copy("llama", tmp_path)
    with open_model(folder) as source:
        cut(folder / "model.safetensors", 5000)
        with pytest.raises(EngineError, match=r"llama: model.safetensors was cut short while it was read"):
            for name in source.tensors:
                source.data(name)


def test_a_quantisation_that_there_is_not(tiny_path: Path) -> None:
    message = refused(MODELS / "llama", "q3_k")
    assert message == f"unknown quantisation 'q3_k'; there is {', '.join(QUANTISATIONS)}"
    assert refused(tiny_path, "q8_0") == (
        "tiny.gguf: the weights of a GGUF file stay as they are; leave out the quantisation"
    )


def test_one_file_of_a_folder() -> None:
    message = refused(MODELS / "llama" / "model.safetensors")
    assert message.startswith("model.safetensors: this is one file of a Hugging Face model; give its folder")
