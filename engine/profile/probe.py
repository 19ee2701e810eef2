"""The streaming floor's denominator: how fast this device reads memory, measured once and kept on disk."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import psutil

from engine import disk_cache
from engine.errors import EngineError
from engine.program.op import Op
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice
from engine.vulkan.pipelines import Defines, Kernels

_VERSION = 2  # of the method: a figure measured another way is not this one
_GPU_BYTES = 2 << 30
_CPU_BYTES = 128 << 20
_LEAST_BYTES = 16 << 20
_LOAD_BYTES = 16
_LEAST_PASSES = 8
_SECONDS = 0.7  # an idle GPU raises its clocks only after a while, and other work leaves some passes alone
_PATTERN = 0x9E3779B9  # pages nobody wrote may all be one page of zeros, which a cache holds


@dataclass(frozen=True, slots=True)
class Probe:
    """Read bandwidth: the best of several passes over ``size_bytes``, by the device's own timestamps."""

    gb_s: float  # 1e9 bytes a second
    size_bytes: int


def probe_bandwidth(device: Device, memory: Memory, kernels: Kernels) -> Probe:
    """The device's read bandwidth, from disk where this device, driver and method have been measured before.

    Takes up to a second the first time, and memory of its own, freed again. Nothing may be in flight.
    Raise EngineError where not even 16 MB are left.
    """
    path = disk_cache.cache_file("probe", f"{device.cache_key}.json")
    wanted = probe_bytes(device)
    kind = "rows" if device.row_kernels else "groups"
    key = f"v{_VERSION} {device.info.name} | {device.info.driver} | {kind} | {wanted}"
    known = _read(path, key)
    if known is None:
        known = measure_bandwidth(device, memory, kernels, wanted)
        if known.size_bytes == wanted:  # a smaller one, for want of memory, is not worth keeping
            disk_cache.store_json(path, {key: asdict(known)})
    return known


def probe_bytes(device: Device) -> int:
    """Several times the last-level cache: on a GPU 2 GiB or a quarter of its memory, on a CPU 4 times its L3.

    Whole 16 MiB, and never more than the device allows in one buffer.
    """
    if device.is_cpu:
        size = max(4 * last_level_cache_bytes(), _CPU_BYTES)
    else:
        size = min(_GPU_BYTES, device.info.memory_bytes // 4)
    limit = device.max_allocation_bytes
    if device.binding == "descriptors":
        limit = min(limit, device.max_storage_range_bytes)
    return max(min(size, limit) // _LEAST_BYTES * _LEAST_BYTES, _LEAST_BYTES)


def last_level_cache_bytes() -> int:
    """The largest cache of this machine's first CPU; 0 where the system does not say."""
    sizes = []
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 1)
        sizes.append(int(text.rstrip("KMG")) * unit)
    return max(sizes, default=0)


def measure_bandwidth(device: Device, memory: Memory, kernels: Kernels, wanted: int) -> Probe:
    """Measure now, over ``wanted`` bytes (whole 16 MiB), or over the half as often as memory is short."""
    for size in _sizes(device, memory, wanted):
        defines, groups, invocations = _shape(device, size)
        try:
            with memory.temporary(size) as source, memory.temporary(4 * invocations) as folds:
                op = Op("probe", kernels.get("probe_read", defines), (source, folds), (), groups)
                return Probe(size / (1e3 * _best_us(device, op, source)), size)
        except EngineError:
            if size <= _LEAST_BYTES:
                raise
    raise EngineError("too little memory is left for the bandwidth probe")


def _sizes(device: Device, memory: Memory, wanted: int) -> Iterator[int]:
    """``wanted``, then its halves, from what leaves half of the free memory free."""
    free = psutil.virtual_memory().available if device.is_cpu else memory.available_bytes()
    size = wanted
    while size > _LEAST_BYTES and free is not None and size > free // 2:
        size //= 2
    while size >= _LEAST_BYTES:
        yield size // _LEAST_BYTES * _LEAST_BYTES
        size //= 2


def _shape(device: Device, size: int) -> tuple[Defines, tuple[int, int, int], int]:
    """Defines, workgroups and invocations; ``size`` is whole 16 MiB, and so whole workgroups."""
    width, loads, batch = (device.subgroup_size, 1024, 16) if device.row_kernels else (256, 64, 8)
    groups = size // (width * loads * _LOAD_BYTES)
    return {"INVOCATIONS": width, "LOADS": loads, "BATCH": batch}, (groups, 1, 1), groups * width


def _best_us(device: Device, op: Op, source: Slice) -> float:
    """The shortest pass after a warm-up."""
    with closing(CommandBuffer(device)) as commands:
        commands.begin(ONE_TIME_SUBMIT)
        commands.fill(source, _PATTERN)
        commands.end()
        commands.run_us()
        commands.record_all([op], [False])
        times: list[float] = []
        started = perf_counter()
        while len(times) <= _LEAST_PASSES or perf_counter() - started < _SECONDS:
            times.append(commands.run_us())
    return min(times[1:])


def _read(path: Path, key: str) -> Probe | None:
    try:
        stored = disk_cache.load_json(path)[key]
        probe = Probe(float(stored["gb_s"]), int(stored["size_bytes"]))
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    return probe if 0 < probe.gb_s < math.inf else None
