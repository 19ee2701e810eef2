"""Models known by their shape alone: what the header of their file would say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from engine.models import llama
from engine.models.config import Geometry
from engine.weights.gguf import TensorInfo

_T = GGMLQuantizationType


@dataclass(frozen=True, slots=True)
class Shape:
    """A llama model: the sizes a GGUF header gives, and the types of its matrices.

    ``output`` None ties the head to the embedding. ``others``: matrices by name that are not of type ``weight``.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    rope_theta: float
    weight: GGMLQuantizationType
    embedding: GGMLQuantizationType
    output: GGMLQuantizationType | None
    others: Mapping[str, GGMLQuantizationType] = field(default_factory=dict)

    def metadata(self) -> dict[str, Any]:
        """The GGUF keys that the architecture reads."""
        values = {
            "block_count": self.layers,
            "embedding_length": self.hidden,
            "attention.head_count": self.heads,
            "attention.head_count_kv": self.kv_heads,
            "feed_forward_length": self.ffn,
            "rope.freq_base": self.rope_theta,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "context_length": 8192,
        }
        return {f"{llama.ARCHITECTURE}.{key}": value for key, value in values.items()}

    def geometry_and_tensors(self, name: str) -> tuple[Geometry, dict[str, TensorInfo]]:
        """The geometry, and every tensor by name. Raise EngineError for a shape that cannot be."""
        table = _tensor("token_embd.weight", (self.vocab, self.hidden), self.embedding)
        present = {table.name: table}
        if self.output is not None:
            present["output.weight"] = _tensor("output.weight", table.shape, self.output)
        geometry = llama.geometry(name, self.metadata(), present)
        for spec in llama.tensors(geometry, present):
            kind = self.others.get(spec.name, self.weight) if spec.uses else _T.F32
            present.setdefault(spec.name, _tensor(spec.name, spec.shape, kind))
        return geometry, present


def _tensor(name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> TensorInfo:
    elements, block_bytes = GGML_QUANT_SIZES[kind]
    return TensorInfo(name, shape, kind, 0, prod(shape) // elements * block_bytes)


SHAPES: dict[str, Shape] = {
    "smollm2-135m-q4_1": Shape(30, 576, 9, 3, 1536, 49152, 1e5, _T.Q4_1, _T.Q8_0, None),
    "llama-8b-q4_k": Shape(36, 4096, 32, 8, 12288, 151936, 1e6, _T.Q4_K, _T.Q4_K, _T.Q6_K),
    # no real model: kernels of the types that the two above lack
    "llama-8b-mixed": Shape(
        2, 4096, 32, 8, 12288, 151936, 1e6, _T.Q5_K, _T.Q3_K, _T.MXFP4,
        {
            "blk.0.attn_output.weight": _T.IQ4_NL, "blk.0.ffn_gate.weight": _T.Q3_K, "blk.0.ffn_up.weight": _T.Q3_K,
            "blk.0.ffn_down.weight": _T.IQ4_XS,
            "blk.1.attn_q.weight": _T.Q2_K, "blk.1.attn_k.weight": _T.Q2_K, "blk.1.attn_v.weight": _T.Q2_K,
            "blk.1.attn_output.weight": _T.MXFP4, "blk.1.ffn_gate.weight": _T.IQ4_XS, "blk.1.ffn_up.weight": _T.IQ4_XS,
        },
    ),
}  # fmt: skip
