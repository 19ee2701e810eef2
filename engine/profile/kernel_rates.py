"""What each kind of kernel in a token takes, and how much of the memory's bandwidth it reaches."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from engine.profile.timeline import KernelSpan


@dataclass(frozen=True, slots=True)
class KernelRate:
    """One kind: dispatches of the same name, the layer left out, that read the same type of weights.

    ``count`` of them run for a token. ``time_us`` and ``bytes_moved`` are medians over dispatches, ``gb_s`` the median
    of bytes over time (1e9 bytes a second; None where the clock's tick is too long to time any), ``probe_fraction``
    that over the probe's bandwidth, None without one.
    """

    name: str
    weight_type: str
    piece: str
    count: float
    time_us: float
    bytes_moved: int
    gb_s: float | None
    probe_fraction: float | None


@dataclass(slots=True)
class _Kind:
    piece: str
    time_us: list[float] = field(default_factory=list)
    bytes_moved: list[int] = field(default_factory=list)


def kernel_rates(tokens: Iterable[Sequence[KernelSpan]], probe_gb_s: float | None) -> list[KernelRate]:
    """The kinds in the program's order, of tokens' kernels (``TokenTrace.kernels``), which ran under the same settings.

    Tokens without any, which were not stamped, do not count.
    A dispatch's time is from its first workgroup's start to its last one's end, its bytes are those it must read and
    write. What lies in a cache is read faster than the probe reads memory, so a fraction may be above 1.
    """
    kinds: dict[tuple[str, str], _Kind] = {}
    stamped_tokens = 0
    for kernels in tokens:
        stamped_tokens += bool(kernels)
        for kernel in kernels:
            kind = kinds.setdefault((_without_layer(kernel.name), kernel.weight_type), _Kind(kernel.piece))
            kind.time_us.append((kernel.end_ns - kernel.start_ns) / 1e3)
            kind.bytes_moved.append(kernel.bytes_moved)
    return [_rate(name, weight_type, kind, stamped_tokens, probe_gb_s) for (name, weight_type), kind in kinds.items()]


def _rate(name: str, weight_type: str, kind: _Kind, tokens: int, probe_gb_s: float | None) -> KernelRate:
    reached = [size / 1e3 / us for size, us in zip(kind.bytes_moved, kind.time_us, strict=True) if us > 0]
    gb_s = statistics.median(reached) if reached else None
    return KernelRate(
        name,
        weight_type,
        kind.piece,
        len(kind.time_us) / tokens,
        statistics.median(kind.time_us),
        round(statistics.median(kind.bytes_moved)),
        gb_s,
        gb_s / probe_gb_s if gb_s is not None and probe_gb_s else None,
    )


def _without_layer(name: str) -> str:
    """ "attend" of "blk.3.attend"; the same for all layers."""
    block, dot, rest = name.partition(".")
    return rest.partition(".")[2] if dot and block == "blk" else name
