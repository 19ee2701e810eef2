"""Makes the tiny random Hugging Face folders beside it, with transformers' own logits for each.

Run by hand, and only to add a model: it needs torch and transformers (5.24), which the project does not depend on.

    python tests/data/models/make.py [NAME ...]

Each folder has a config.json in the style of that family's releases, safetensors, and reference.npz: ``ids`` int32
(tokens,) and ``logits`` float32 (tokens, vocabulary), computed in float32 from the weights as stored. Every weight is
random and far enough from its neutral value that leaving out its term, or applying it in the wrong place, shows.
"""

from __future__ import annotations

import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

FOLDER = Path(__file__).parent
VOCAB, TOKENS = 320, 40
Tensors = dict[str, torch.Tensor]

_COMMON: dict[str, Any] = {
    "vocab_size": VOCAB,
    "max_position_embeddings": 2048,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "dtype": "bfloat16",
}
_LLAMA: dict[str, Any] = _COMMON | {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rope_theta": 100000.0,
    "rope_scaling": None,
    "tie_word_embeddings": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    # original_max_position_embeddings is small, so that some frequencies are kept, some scaled, some in between
    "llama3": _LLAMA
    | {
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "head_dim": 32,
        "rope_theta": 500000.0,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 64,
            "rope_type": "llama3",
        },
        "tie_word_embeddings": False,
        "eos_token_id": [2, 5, 6],
    },
    "mistral": _LLAMA
    | {
        "architectures": ["MistralForCausalLM"],
        "model_type": "mistral",
        "num_hidden_layers": 2,
        "head_dim": 24,
        "rope_theta": 10000.0,
        "sliding_window": 13,
        "tie_word_embeddings": False,
    },
    "qwen2": _LLAMA
    | {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "sliding_window": 16,
        "max_window_layers": 3,
        "dtype": "float16",
    },
    "qwen3": _LLAMA
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "head_dim": 32,
        "attention_bias": False,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000.0,
        "use_sliding_window": False,
        "sliding_window": None,
        "tie_word_embeddings": False,
    },
    "qwen3_5": _COMMON
    | {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "attention_bias": False,
        "attn_output_gate": True,
        "full_attention_interval": 4,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 32,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_value_head_dim": 32,
        "mamba_ssm_dtype": "float32",
        "rms_norm_eps": 1e-6,
        "rope_parameters": {
            "mrope_interleaved": True,
            "mrope_section": [2, 1, 1],
            "partial_rotary_factor": 0.25,
            "rope_theta": 10000000,
            "rope_type": "default",
        },
        "tie_word_embeddings": True,
    },
    "gemma3": _COMMON
    | {
        "architectures": ["Gemma3ForCausalLM"],
        "model_type": "gemma3_text",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 7,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "hidden_activation": "gelu_pytorch_tanh",
        "attention_bias": False,
        "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
        "query_pre_attn_scalar": 20,
        "rms_norm_eps": 1e-6,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "rope_theta": 1000000.0,
        "sliding_window": 12,
        "sliding_window_pattern": 6,
        "bos_token_id": 2,
        "eos_token_id": [1, 106],
    },
    "smollm3": _LLAMA
    | {
        "architectures": ["SmolLM3ForCausalLM"],
        "model_type": "smollm3",
        "hidden_size": 32,
        "num_hidden_layers": 5,
        "head_dim": 16,
        "attention_bias": False,
        "mlp_bias": False,
        "no_rope_layer_interval": 4,
        "no_rope_layers": [1, 1, 1, 0, 1],
        "layer_types": ["full_attention"] * 5,
        "use_sliding_window": False,
        "sliding_window": None,
        "rms_norm_eps": 1e-6,
        "rope_theta": 5000000.0,
        "pad_token_id": 0,
    },
}
CONFIGS["gemma3"].pop("hidden_act")  # Gemma calls it hidden_activation
SHARDS = {"llama3": 3}
NORM_PLUS_ONE = ("gemma3", "qwen3_5")
FLOAT32 = ("A_log", "linear_attn.norm.weight")  # of a BF16 checkpoint, as Qwen3.5's are


def random_weights(name: str, shapes: dict[str, torch.Size]) -> Tensors:
    """Values for each parameter; embeddings are small and layers' outputs large, so that the layers decide."""
    random = torch.Generator().manual_seed(zlib.crc32(name.encode()))

    def normal(shape: torch.Size, deviation: float, mean: float = 0.0) -> torch.Tensor:
        return mean + deviation * torch.randn(shape, generator=random)

    tensors: Tensors = {}
    for key, shape in shapes.items():
        if key.endswith("A_log"):
            values = torch.rand(shape, generator=random) * 3 - 2  # decays of 0.13 to 2.7 a unit of softplus
        elif key.endswith("dt_bias"):
            values = normal(shape, 1.0)
        elif key.endswith("conv1d.weight"):
            values = normal(shape, 0.5)
        elif key.endswith("embed_tokens.weight"):
            values = normal(shape, 0.1)
        elif key.endswith("lm_head.weight"):
            values = normal(shape, 0.3)
        elif key.endswith("bias"):
            values = normal(shape, 0.5)
        elif "norm" in key:
            plain = name not in NORM_PLUS_ONE or "linear_attn.norm" in key
            mean = 3.0 if key == "model.norm.weight" else 1.0
            values = normal(shape, 0.25, mean if plain else mean - 1.0)
        else:
            gain = {"q_proj": 2.0, "k_proj": 2.0, "gate_proj": 1.5, "up_proj": 1.5}.get(key.split(".")[-2], 1.0)
            values = normal(shape, gain / shape[1] ** 0.5)
        tensors[key] = values
    return tensors


def save(folder: Path, tensors: Tensors, shards: int) -> None:
    """One file, or several with an index."""
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(tensors)
    weight_map: dict[str, str] = {}
    for index in range(shards):
        file = f"model-{index + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: tensors[key] for key in names[index::shards]}
        save_file(part, folder / file, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(part, file)
    total = sum(tensor.nbytes for tensor in tensors.values())
    index_text = json.dumps(
        {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}, indent=2
    )
    (folder / "model.safetensors.index.json").write_text(index_text + "\n")


def make(name: str) -> None:
    """Write tests/data/models/NAME."""
    folder = FOLDER / name
    folder.mkdir(exist_ok=True)
    config = dict(sorted(CONFIGS[name].items()))
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    shapes = {key: parameter.shape for key, parameter in model.named_parameters()}
    stored_type = getattr(torch, config["dtype"])
    tensors = {
        key: value.to(torch.float32 if key.endswith(FLOAT32) else stored_type)
        for key, value in random_weights(name, shapes).items()
    }
    save(folder, tensors, SHARDS.get(name, 1))

    model, report = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
    )
    unused = [*report["missing_keys"], *report["unexpected_keys"], *report["mismatched_keys"]]
    assert not [key for key in unused if key != "lm_head.weight"], unused
    for key, parameter in model.named_parameters():
        assert torch.equal(parameter, tensors[key].float()), key
    ids = np.random.default_rng(zlib.crc32(name.encode())).integers(0, VOCAB, TOKENS).astype(np.int32)
    with torch.no_grad():
        logits = model.eval()(torch.from_numpy(ids)[None].long()).logits[0].float().numpy()
    np.savez_compressed(folder / "reference.npz", ids=ids, logits=logits)
    total = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{name}: {total:,} bytes, logits' deviation {logits.std():.2f}, largest {np.abs(logits).max():.1f}")
    assert total < 300_000


if __name__ == "__main__":
    for model_name in sys.argv[1:] or CONFIGS:
        make(model_name)
