"""How far an engine's logits may be from a float64 forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engine import Engine
from engine.program.matrix_kernels import matrix_size
from tests.engine import llama_reference

Logits = npt.NDArray[np.floating[Any]]


def tolerance(engine: Engine) -> float:
    """Relative to the largest logit, for prompts that never change: others need ``reference``'s bounds.

    Now and then a float16 key or value rounds the other way than in float64. Cooperative matrices round a prompt's
    weights to float16 too.
    """
    return 1e-2 if matrix_size(engine._runtime._kernels) else 2e-3


def reference(engine: Engine, path: Path, ids: Sequence[int]) -> tuple[Logits, Logits]:
    """Logits after each of ``ids`` by a float64 pass, (ids, vocab), and how far the engine's may be from each, (ids,).

    A key or value that rounds to float16 the other way than in float64 adds twice its own rounding at most. Few do, so
    together they add less than all roundings do: that effect, which depends on model and prompt, is measured. Four
    times it is the bound, since roundings may also cancel out. Cooperative matrices round a prompt's weights besides.
    """
    expected = llama_reference.logits(path, ids, np.float16)
    effect = np.abs(expected - llama_reference.logits(path, ids)).max(-1)
    if matrix_size(engine._runtime._kernels):
        effect += np.abs(expected - llama_reference.logits(path, ids, np.float16, np.float16)).max(-1)
    return expected, 4 * effect


def assert_logits(engine: Engine, path: Path, ids: Sequence[int], found: Sequence[Logits]) -> None:
    """``found`` are the engine's logits after the last of ``ids``, or after as many as there are of them."""
    expected, bound = reference(engine, path, ids)
    for logits, wanted, limit in zip(found, expected[-len(found) :], bound[-len(found) :], strict=True):
        assert np.isfinite(logits).all()
        error = np.abs(logits - wanted).max()
        assert error <= limit, f"{error / limit:.2f} times the bound"


def assert_greedy(engine: Engine, path: Path, prompt: Sequence[int], reply: Sequence[int]) -> None:
    """Each id of ``reply`` is the largest logit's, but for what two logits' errors may turn round."""
    expected, bound = reference(engine, path, [*prompt, *reply])
    for id, logits, limit in zip(reply, expected[len(prompt) - 1 :], bound[len(prompt) - 1 :], strict=False):
        assert logits[id] >= logits.max() - 2 * limit
