"""Generating with the engine's switches flipped between tokens at random."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass

from engine import Engine, Sampling

FLIP_CHANCE = 0.2  # a token


@dataclass(frozen=True)
class Generated:
    """The ids, and under how many (mode, barriers, fusion) settings and with how many changes they were made."""

    ids: list[int]
    settings: set[tuple[str, str, bool]]
    flips: int


def generate(
    engine: Engine, prompt: Sequence[int], sampling: Sampling, count: int, flips: random.Random | None = None
) -> Generated:
    """``count`` tokens from an empty context, end tokens ignored; ``flips`` says where the switches change."""
    session = engine.session()
    session.prefill(list(prompt))
    ids: list[int] = []
    used: list[tuple[str, str, bool]] = []
    for token in session.generate(sampling, max_tokens=count, ignore_eos=True):
        ids.append(token.id)
        used.append((token.timing.mode, token.timing.barriers, token.timing.fusion))
        if flips is not None and flips.random() < FLIP_CHANCE:
            engine.mode = flips.choice(engine.modes)
            engine.barriers = flips.choice(engine.barrier_policies)
            engine.fusion = flips.random() < 0.5
    changes = sum(before != after for before, after in itertools.pairwise(used))
    return Generated(ids, set(used), changes)
