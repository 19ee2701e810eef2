"""Qwen 2 and 2.5: Llama's layers with biases on the projections q, k and v."""

from __future__ import annotations

from engine.models.blocks import Block
from engine.models.uniform import Uniform

QWEN2 = Uniform("qwen2", Block(bias=True), rope_halves=True)
