"""Models known by their shape alone: what the header of their file would say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.models import llama, qwen35
from engine.models.architecture import Architecture
from engine.models.config import Geometry
from engine.weights.gguf import TensorInfo

_T = GGMLQuantizationType


@dataclass(frozen=True, slots=True)
class Shape:
    """A model: the sizes a GGUF header gives (``keys``, without the architecture's name), and its matrices' types.

    ``output`` None ties the head to the embedding. ``others``: matrices by name that are not of type ``weight``.
    """

    model: Architecture
    keys: Mapping[str, Any]
    vocab: int
    weight: GGMLQuantizationType
    embedding: GGMLQuantizationType
    output: GGMLQuantizationType | None
    others: Mapping[str, GGMLQuantizationType] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """The GGUF keys that the architecture reads."""
        values = {**self.keys, "context_length": 8192}
        return {f"{self.model.ARCHITECTURE}.{key}": value for key, value in values.items()}

    def geometry_and_tensors(self, name: str) -> tuple[Geometry, dict[str, TensorInfo]]:
        """The geometry, and every tensor by name. Raise EngineError for a shape that cannot be."""
        table = _tensor("token_embd.weight", (self.vocab, self.keys["embedding_length"]), self.embedding)
        present = {table.name: table}
        if self.output is not None:
            present["output.weight"] = _tensor("output.weight", table.shape, self.output)
        geometry = self.model.geometry(name, self.metadata(), present)
        for spec in self.model.tensors(geometry, present):
            kind = self.others.get(spec.file_name, self.weight) if spec.uses else _T.F32
            present.setdefault(spec.file_name, _tensor(spec.file_name, spec.file_shape, kind))
        return geometry, present


def _llama(
    layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, theta: float, *types: Any
) -> Shape:
    keys = {
        "block_count": layers,
        "embedding_length": hidden,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "feed_forward_length": ffn,
        "rope.freq_base": theta,
        "attention.layer_norm_rms_epsilon": 1e-5,
    }
    return Shape(llama, keys, vocab, *types)


def _qwen35(layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, value_heads: int, tied: bool) -> Shape:
    """As Q4_K_M files are mixed: in every second layer some matrices are Q6_K."""
    keys = {
        "block_count": layers,
        "embedding_length": hidden,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "rope.dimension_count": 64,
        "feed_forward_length": ffn,
        "rope.freq_base": 1e7,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "ssm.conv_kernel": 4,
        "ssm.state_size": 128,
        "ssm.group_count": 16,
        "ssm.time_step_rank": value_heads,
        "ssm.inner_size": value_heads * 128,
        "full_attention_interval": 4,
    }
    others = {f"blk.{i}.{name}.weight": _T.Q8_0 for i in range(layers) for name in ("ssm_alpha", "ssm_beta")}
    wide = ("attn_qkv", "attn_v", "ffn_down")
    others |= {f"blk.{i}.{name}.weight": _T.Q6_K for i in range(1, layers, 2) for name in wide}
    return Shape(qwen35, keys, 248320, _T.Q4_K, _T.Q6_K if tied else _T.Q4_K, None if tied else _T.Q6_K, others)


def _tensor(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> TensorInfo:
    elements, block_bytes = GGML_QUANT_SIZES[kind]
    return TensorInfo(name, shape, kind, 0, prod(shape) // elements * block_bytes)


SHAPES: dict[str, Shape] = {
    "smollm2-135m-q4_1": _llama(30, 576, 9, 3, 1536, 49152, 1e5, _T.Q4_1, _T.Q8_0, None),
    "llama-8b-q4_k": _llama(36, 4096, 32, 8, 12288, 151936, 1e6, _T.Q4_K, _T.Q4_K, _T.Q6_K),
    "qwen3.5-9b-q4_k": _qwen35(32, 4096, 16, 4, 12288, 32, tied=False),
    # no real model: kernels of the types that the two above lack
    "llama-8b-mixed": _llama(
        2, 4096, 32, 8, 12288, 151936, 1e6, _T.Q5_K, _T.Q3_K, _T.MXFP4,
        {
            "blk.0.attn_output.weight": _T.IQ4_NL, "blk.0.ffn_gate.weight": _T.Q3_K, "blk.0.ffn_up.weight": _T.Q3_K,
            "blk.0.ffn_down.weight": _T.IQ4_XS,
            "blk.1.attn_q.weight": _T.Q2_K, "blk.1.attn_k.weight": _T.Q2_K, "blk.1.attn_v.weight": _T.Q2_K,
            "blk.1.attn_output.weight": _T.MXFP4, "blk.1.ffn_gate.weight": _T.IQ4_XS, "blk.1.ffn_up.weight": _T.IQ4_XS,
        },
    ),
}  # fmt: skip
