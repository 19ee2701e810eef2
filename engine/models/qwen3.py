"""Qwen 3: Llama's layers with norms of the heads of q and k."""

from __future__ import annotations

from engine.models.blocks import Block
from engine.models.uniform import Uniform

QWEN3 = Uniform("qwen3", Block(head_norm=True), rope_halves=True)
