"""Qwen 3 checkpoints."""

from __future__ import annotations

from engine.models.hugging_face.rules import QK_NORM
from engine.models.hugging_face.uniform import Uniform

QWEN3 = Uniform("qwen3", QK_NORM)
