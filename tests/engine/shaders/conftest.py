"""A device, and the sets of kernels that its matrix kernels are tested with."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from engine.vulkan.pipelines import Kernels
from tests.engine.gpu import Gpu

Variants = dict[str, Kernels]


@pytest.fixture(scope="module")
def gpu() -> Iterator[Gpu]:
    with Gpu() as device:
        yield device


@pytest.fixture(scope="module")
def variants(gpu: Gpu) -> Iterator[Variants]:
    """This device's own kernels, those for GPUs, and for GPUs without cooperative matrices."""
    others = {name: Kernels(gpu.device) for name in ("gpu", "tiled")}
    for other in others.values():
        other.base.pop("CPU_DEVICE", None)
    others["tiled"].base["NO_COOPERATIVE_MATRIX"] = 1
    yield {"own": gpu.kernels, **others}
    for other in others.values():
        other.close()


@pytest.fixture(params=["own", "gpu"])
def kernels(request: pytest.FixtureRequest, variants: Variants) -> Kernels:
    return variants[request.param]


@pytest.fixture(params=["own", "gpu", "tiled"])
def prompt_kernels(request: pytest.FixtureRequest, variants: Variants) -> Kernels:
    return variants[request.param]
