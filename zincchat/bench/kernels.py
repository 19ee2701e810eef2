"""Each kind of kernel's time, bytes and bandwidth, from the stamped passes of one setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine import kernel_rates
from zincchat.bench.measure import Samples, kernel_setting
from zincchat.bench.setting import Setting


def kernels(samples: Mapping[Setting, Samples], probe_gb_s: float | None) -> dict[str, Any] | None:
    """The setting's switches, ``stamped_tokens``, and ``kinds``: a ``KernelRate`` each. None without stamped tokens."""
    chosen = kernel_setting(list(samples))
    tokens = [kernels for each in samples[chosen].stamped for kernels in each.kernels]
    if not tokens:
        return None
    return {
        **chosen.to_json(),
        "stamped_tokens": len(tokens),
        "kinds": [asdict(rate) for rate in kernel_rates(tokens, probe_gb_s)],
    }
