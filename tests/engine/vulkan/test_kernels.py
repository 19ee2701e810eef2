"""Kernels asked for by several threads at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest

from engine.vulkan.api import lib
from engine.vulkan.pipelines import Kernels
from tests.engine.gpu import Gpu

THREADS = 4


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    with Gpu() as opened:
        yield opened


def test_threads_that_build_the_same_kernel_get_one_and_no_other_is_left(
    gpu: Gpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    together, build = Barrier(THREADS), Kernels._build
    built: list[Any] = []

    def slow(self: Kernels, *arguments: Any) -> Any:
        together.wait(10)
        built.append(build(self, *arguments))
        return built[-1]

    destroyed: list[Any] = []
    destroy = lib.vkDestroyPipeline

    class Library:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def vkDestroyPipeline(self, handle: Any, pipeline: Any, allocator: Any) -> None:
            destroyed.append(pipeline)
            destroy(handle, pipeline, allocator)

    monkeypatch.setattr(Kernels, "_build", slow)
    monkeypatch.setattr("engine.vulkan.pipelines.lib", Library())
    with ThreadPoolExecutor(THREADS) as pool:
        found = list(pool.map(lambda _: gpu.kernels.get("nothing"), range(THREADS)))
    kept = gpu.kernels.get("nothing")
    assert found == [kept] * THREADS and len(built) == THREADS
    assert len(destroyed) == THREADS - 1 and kept.pipeline not in destroyed
    gpu.kernels.close()
    assert sorted(map(str, destroyed)) == sorted(str(kernel.pipeline) for kernel in built)
    gpu.kernels = Kernels(gpu.device)  # for the fixture to close
