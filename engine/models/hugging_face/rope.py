"""RoPE settings of config.json, in the older form (rope_theta, rope_scaling) and the newer (rope_parameters)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from engine.errors import EngineError
from engine.models.hugging_face.config import FILE, Config


class Rope:
    """``theta``, and how the frequencies are scaled: ``kind`` is "default", "linear" or "llama3"."""

    def __init__(self, config: Config, default_theta: float, layer_type: str | None = None) -> None:
        """``layer_type``: which of several settings, in models whose layers differ. EngineError for other kinds."""
        settings = config.part("rope_parameters")
        if settings is not None and layer_type is not None:
            settings = settings.part(layer_type) or settings
        theta = config.number("rope_theta", default_theta)
        if settings is None:
            settings = config.part("rope_scaling") or Config(config.name, {})
        else:
            theta = settings.number("rope_theta", theta)
        if not 1 <= theta <= 1e12:
            raise EngineError(f"{config.name}: rope_theta is {theta:g} in {FILE}; it must be between 1 and 1e12")
        self.theta, self.settings = theta, settings
        self.kind = settings.get("rope_type") or settings.get("type") or "default"
        if self.kind == "mrope":  # of text alone, the same as no scaling
            self.kind = "default"
        if self.kind not in ("default", "linear", "llama3"):
            raise EngineError(
                f"{config.name}: RoPE scaling {str(self.kind)[:40]!r} in {FILE} is not supported; "
                "there is linear and llama3"
            )

    def keys(self) -> dict[str, Any]:
        """GGUF's keys, without the architecture before them. Llama 3's scaling is a tensor instead."""
        keys: dict[str, Any] = {"rope.freq_base": self.theta}
        if self.kind == "linear":
            keys |= {"rope.scaling.type": "linear", "rope.scaling.factor": self.settings.number("factor")}
        return keys

    def divisors(self, rotated: int) -> npt.NDArray[np.float32] | None:
        """Llama 3's ``rope_freqs.weight``, (rotated / 2,): what each frequency is divided by; None without scaling.

        Formula: ``_compute_llama3_parameters`` of transformers' modeling_rope_utils.py.
        """
        if self.kind != "llama3":
            return None
        settings = self.settings
        factor, low, high = (settings.number(key) for key in ("factor", "low_freq_factor", "high_freq_factor"))
        context = settings.positive("original_max_position_embeddings")
        if not (1e6 > factor > 0 and high > low > 0):
            raise settings.error("high_freq_factor", "above low_freq_factor, and all three above 0")
        wavelengths = 2 * math.pi * self.theta ** (np.arange(0, rotated, 2) / rotated)
        kept = np.clip((context / wavelengths - low) / (high - low), 0, 1)
        return (1 / ((1 - kept) / factor + kept)).astype(np.float32)
