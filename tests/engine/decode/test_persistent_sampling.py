"""Mode ``persistent`` draws as the sampling kernel by itself does, whatever of it a reply asks for.

A driver compiles that kernel anew among all others. One got top-p's sums wrong there, only beside cooperative matrices:
so here any context is long enough for them, and the query heads share keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine import FUSION_PASSES, Engine, Sampling
from engine.decode.persistent import Persistent
from engine.program import attend_division
from tests.engine.tiny_runs import attends_by_matrices, random_ids, take_mode
from tests.flipping import generate

TOKENS = 12
SAMPLINGS = {
    "greedy": Sampling(temperature=0.0),
    "greedy, penalty": Sampling(temperature=0.0, repeat_penalty=1.3),
    "temperature": Sampling(temperature=0.8, top_p=1.0, seed=7),
    "hot": Sampling(temperature=1.5, top_p=1.0, seed=8),
    "top-k": Sampling(temperature=0.8, top_k=20, top_p=1.0, seed=9),
    "top-p": Sampling(temperature=0.8, top_p=0.95, seed=10),
    "top-p, hot": Sampling(temperature=1.5, top_p=0.8, seed=11),
    "small top-p": Sampling(temperature=1.0, top_p=0.02, seed=12),
    "top-p of all alike": Sampling(temperature=100.0, top_p=0.5, seed=13),
    "min-p": Sampling(temperature=0.8, top_p=1.0, min_p=0.05, seed=14),
    "penalty, top-p": Sampling(temperature=0.8, top_p=0.9, repeat_penalty=1.3, seed=15),
    "all": Sampling(temperature=1.1, top_k=30, top_p=0.7, min_p=0.02, repeat_penalty=1.2, seed=16),
}


@pytest.fixture(scope="module")
def engine(tiny_path: Path) -> Iterator[Engine]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attend_division, "_ALONE_TOKENS", 0)
        with Engine.open(tiny_path, context=512, fusion=FUSION_PASSES, barriers="needed", row_kernels=False) as opened:
            opened.stamp_every = 0
            yield opened


def test_the_kernel_has_cooperative_matrices_where_the_device_has(engine: Engine) -> None:
    take_mode(engine, "persistent")
    generate(engine, random_ids(3), SAMPLINGS["greedy"], 2)
    mode = engine._runtime.mode("persistent")
    assert isinstance(mode, Persistent)
    (walker,) = mode._walkers.values()
    names = {kernel.name for kernel in walker._joined.numbers}
    assert "sample_pick" in names and ("attend_matrices" in names) == attends_by_matrices(engine)


@pytest.mark.parametrize("name", SAMPLINGS)
def test_it_draws_the_ids_of_reuse(engine: Engine, name: str) -> None:
    take_mode(engine, "persistent")
    for _ in range(10):
        ids = {}
        prompt = random_ids(5)
        for engine.mode in ("reuse", "persistent"):
            ids[engine.mode] = generate(engine, prompt, SAMPLINGS[name], TOKENS).ids
        assert ids["persistent"] == ids["reuse"]
