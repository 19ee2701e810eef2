"""Hugging Face folders: what they give is what the tests' own converter writes to GGUF, to the bit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Type

from engine.errors import EngineError
from engine.weights import hugging_face
from engine.weights.gguf import GGUFFile
from engine.weights.open_model import open_model
from tests.engine.hf_to_gguf import MODELS, hf_to_gguf
from tests.engine.weights.folder import Tensors, change_config, change_tensors, copy

NAMES = sorted(path.parent.name for path in MODELS.glob("*/config.json"))
SMALL_WITH_LARGE_HEAD = {"*": Type.Q4_1, "token_embd": Type.Q8_0, "output": Type.Q8_0}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("quantize", "types"),
    [("q8_0", Type.Q8_0), ("q4_0-all", Type.Q4_0), ("q4_1", SMALL_WITH_LARGE_HEAD), (None, Type.F32)],
)
def test_tensors_are_those_of_the_converted_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, quantize: str | None, types: Any
) -> None:
    monkeypatch.setattr(hugging_face, "_CHUNK_BYTES", 3000)  # a few rows, no whole heads
    path = hf_to_gguf(MODELS / name, tmp_path / "tiny.gguf", types)
    with GGUFFile.open(path) as file, open_model(MODELS / name, quantize) as folder:
        assert folder.tensors.keys() == file.tensors.keys()
        for key, info in folder.tensors.items():
            expected = file.tensors[key]
            assert info.shape == expected.shape
            data = folder.data(key)
            assert data.size == info.size_bytes
            if quantize is None and info.type != Type.F32:  # as stored, which F32 holds exactly
                assert len(info.shape) == 2
                data = gguf.quants.dequantize(data.reshape(info.shape[0], -1), info.type).view(np.uint8)
            else:
                assert info.type == expected.type
            np.testing.assert_array_equal(data.reshape(-1), file.data(key), err_msg=key)


@pytest.mark.parametrize("name", NAMES)
def test_metadata_says_what_the_converted_file_says(tmp_path: Path, name: str) -> None:
    with GGUFFile.open(hf_to_gguf(MODELS / name, tmp_path / "tiny.gguf")) as file, open_model(MODELS / name) as folder:
        for key, expected in file.metadata.items():
            if isinstance(expected, str):
                assert folder.metadata.get(key, "none") == expected
            else:
                np.testing.assert_allclose(folder.metadata[key], expected, rtol=1e-6, err_msg=key)
        assert folder.file_bytes == sum(path.stat().st_size for path in (MODELS / name).glob("*.safetensors"))


@pytest.mark.parametrize(
    ("prefix", "outside"), [("model.language_model.", ""), ("language_model.model.", "language_model.")]
)
def test_the_text_part_of_a_multimodal_checkpoint(tmp_path: Path, prefix: str, outside: str) -> None:
    """Its config.json holds the text's as a part, its tensors have longer names, and other parts are passed over."""
    folder = copy("qwen3_5", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    parts = {"text_config": config, "vision_config": {"hidden_size": 1}, "model_type": "qwen3_5", "hidden_size": 1}
    (folder / "config.json").write_text(json.dumps(parts))

    def change(tensors: Tensors) -> Tensors:
        item = {"dtype": "I8", "shape": [2], "data": b"ab"}
        head = {f"{outside}lm_head.weight": {"dtype": "F32", "shape": [1, 1], "data": bytes(4)}}
        others = ("model.visual.blocks.0.norm1.weight", "mtp.fc.weight", "vision_tower.x", "multi_modal_projector.y")
        renamed = {prefix + name.removeprefix("model."): item for name, item in tensors.items()}
        return renamed | head | dict.fromkeys(others, item)

    change_tensors(folder / "model.safetensors", change)
    with open_model(MODELS / "qwen3_5") as plain, open_model(folder) as whole:
        assert whole.tensors.keys() == plain.tensors.keys()
        for name in plain.tensors:
            np.testing.assert_array_equal(whole.data(name), plain.data(name))
        assert {**whole.metadata, "general.name": ""} == {**plain.metadata, "general.name": ""}


def test_newer_and_older_forms_of_the_rope_settings(tmp_path: Path) -> None:
    """transformers 5 writes rope_parameters; by layer type where the layers differ."""
    folder = copy("llama3", tmp_path)
    scaling = json.loads((folder / "config.json").read_text())["rope_scaling"]
    change_config(folder, rope_theta=None, rope_scaling=None, rope_parameters={**scaling, "rope_theta": 500000.0})
    with open_model(MODELS / "llama3") as older, open_model(folder) as newer:
        assert newer.metadata == older.metadata
        np.testing.assert_array_equal(newer.data("rope_freqs.weight"), older.data("rope_freqs.weight"))
    folder = copy("gemma3", tmp_path)
    parameters = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
        "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 3e6},
    }
    change_config(
        folder, rope_theta=None, rope_scaling=None, rope_local_base_freq=None, sliding_window_pattern=None,
        layer_types=["sliding_attention", "full_attention"] * 3 + ["sliding_attention"], rope_parameters=parameters,
    )  # fmt: skip
    with open_model(folder) as source:
        stated = {key.removeprefix("gemma3."): value for key, value in source.metadata.items()}
    assert stated["rope.freq_base"] == 3e6
    assert stated["rope.freq_base_swa"] == 2e4
    assert (stated["rope.scaling.type"], stated["rope.scaling.factor"]) == ("linear", 4.0)
    assert stated["attention.sliding_window_pattern"] == 2


def test_generation_settings_become_sampling_defaults(tmp_path: Path) -> None:
    folder = copy("llama", tmp_path)
    settings = {"temperature": 0.6, "top_k": 20, "top_p": None, "repetition_penalty": 1.05, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(settings))
    with open_model(folder) as source:
        found = {key: value for key, value in source.metadata.items() if key.startswith("general.sampling.")}
    assert found == {
        "general.sampling.temp": 0.6, "general.sampling.top_k": 20, "general.sampling.penalty_repeat": 1.05
    }  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"do_sample": False, "temperature": 0.6}, 0.0),
        ({"do_sample": True, "top_k": 64}, 1.0),  # Gemma's
        ({"do_sample": True, "temperature": 0.6}, 0.6),
        ({"temperature": 0.6}, 0.6),
        ({"top_k": 64}, None),
    ],
)
def test_whether_the_generation_settings_sample(
    tmp_path: Path, settings: dict[str, Any], expected: float | None
) -> None:
    folder = copy("llama", tmp_path)
    (folder / "generation_config.json").write_text(json.dumps(settings))
    with open_model(folder) as source:
        assert source.metadata.get("general.sampling.temp") == expected


def test_a_matrix_whose_rows_fill_no_blocks_stays_as_it_is(tmp_path: Path) -> None:
    with open_model(MODELS / "smollm3", "q4_0") as source:
        assert source.tensors["blk.0.attn_q.weight"].type == Type.Q4_0

    def narrow(tensors: Tensors) -> None:
        for name, item in tensors.items():
            if name.endswith("mlp.down_proj.weight"):
                item["data"], item["shape"] = bytes(item["data"])[: 32 * 90 * 2], [32, 90]

    folder = copy("smollm3", tmp_path)
    change_tensors(folder / "model.safetensors", narrow)
    with open_model(folder, "q4_0") as source:
        assert source.tensors["blk.0.ffn_down.weight"].type == Type.BF16
        assert source.data("blk.0.ffn_down.weight").size == 32 * 90 * 2


def test_values_too_large_for_a_type_are_an_error_not_infinite(tmp_path: Path) -> None:
    def enlarge(tensors: Tensors) -> None:
        item = tensors["model.layers.1.mlp.up_proj.weight"]
        item["data"] = bytes(item["data"])[:-2] + b"\x80\x49"  # 2**20 in BF16

    folder = copy("llama", tmp_path)
    change_tensors(folder / "model.safetensors", enlarge)
    name = "blk.1.ffn_up.weight"
    message = r"llama: tensor model.layers.1.mlp.up_proj.weight: a value is too large for F16; take another"
    with open_model(folder, "f16") as source, pytest.raises(EngineError, match=message):
        source.data(name)
    with open_model(folder, "q8_0") as source:
        values = gguf.quants.dequantize(source.data(name).reshape(96, -1), Type.Q8_0)
        assert values[-1, -1] == pytest.approx(2**20, rel=0.01)


def test_the_name_of_a_model_in_the_hubs_cache(tmp_path: Path) -> None:
    snapshots = tmp_path / "models--org--Tiny-Llama-1.1B" / "snapshots"
    snapshots.mkdir(parents=True)
    folder = copy("llama", snapshots).rename(snapshots / "0123abcd")
    with open_model(folder) as source:
        assert source.name == "Tiny-Llama-1.1B"


def test_closed_and_absent(tmp_path: Path) -> None:
    with open_model(MODELS / "llama") as source:
        kept = source.data("output_norm.weight")
        with pytest.raises(EngineError, match="no tensor 'absent'"):
            source.data("absent")
    assert kept.size == 64 * 4
    with pytest.raises(EngineError, match="llama: the model's files are closed"):
        source.data("output_norm.weight")
