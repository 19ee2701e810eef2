"""Hugging Face checkpoints, one file an architecture: what makes of each the metadata and tensors of a GGUF file."""

from __future__ import annotations

from engine.errors import EngineError
from engine.models.hugging_face import gemma3, llama, qwen35, smollm3
from engine.models.hugging_face.config import FILE, Config
from engine.models.hugging_face.qwen2 import QWEN2
from engine.models.hugging_face.qwen3 import QWEN3
from engine.models.hugging_face.rules import Rules

_ALL: tuple[Rules, ...] = (llama, QWEN2, QWEN3, qwen35, gemma3, smollm3)
RULES = {model_type: one for one in _ALL for model_type in one.MODEL_TYPES}


def rules_for(config: Config) -> Rules:
    """The rules of the checkpoint's model_type. EngineError that names those there are, or for a quantised one."""
    model_type = config.get("model_type")
    rules = RULES.get(model_type) if isinstance(model_type, str) else None
    if rules is None:
        what = (
            f"{FILE} states no model_type"
            if model_type is None
            else f"model type {str(model_type)[:40]!r} is not supported"
        )
        raise EngineError(f"{config.name}: {what}; there is {', '.join(RULES)}")
    quantised = config.part("quantization_config")
    if quantised is not None:
        method = str(quantised.get("quant_method"))[:40]
        raise EngineError(
            f"{config.name}: this checkpoint is quantised with {method}, which is not supported; "
            "take the original checkpoint with --quantize, or a GGUF file"
        )
    return rules
