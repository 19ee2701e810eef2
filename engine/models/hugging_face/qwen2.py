"""Qwen 2 and 2.5 checkpoints."""

from __future__ import annotations

from engine.models.hugging_face.uniform import Uniform

QWEN2 = Uniform("qwen2", {})
