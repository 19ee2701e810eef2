"""Each kind of kernel's time, bytes and bandwidth, from the stamped passes of one setting."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from engine import kernel_rates
from zincchat.bench.measure import Samples
from zincchat.bench.setting import Setting


def kernels(samples: Mapping[Setting, Samples], probe_gb_s: float | None) -> dict[str, Any] | None:
    """The setting's switches, ``stamped_tokens``, and ``kinds``: a ``KernelRate`` each. None without stamped tokens.

    Modes run the same kernels, so one setting stands for all: the first that is fused and whose ops are dispatches
    of their own, if there is one. (In mode persistent an op's weights are on their way before it begins.)
    """
    traces = {setting: [trace for each in found.stamped for trace in each.traces] for setting, found in samples.items()}
    stamped = [setting for setting, found in traces.items() if found]
    if not stamped:
        return None
    chosen = min(stamped, key=lambda setting: (not setting.fusion, setting.mode == "persistent"))
    return {
        **chosen.to_json(),
        "stamped_tokens": len(traces[chosen]),
        "kinds": [asdict(rate) for rate in kernel_rates(traces[chosen], probe_gb_s)],
    }
