"""One line on what a token's time goes to: the CPU, the barriers, the memory bus, or none of them."""

from __future__ import annotations

from dataclasses import dataclass

from engine.profile.waiting import loads_ahead, waits_in_memory

STARVED, STALLED, BANDWIDTH, KERNELS, UNDECIDED = "starved", "stalled", "bandwidth", "kernels", "undecided"
LOSS_FRACTION = 0.1  # of the period: a smaller loss is not what the token waits for
BUS_FRACTION = 0.7  # of the probe: kernels above it are at the bus's limit
_STAMPED_FRACTION = 1.25  # of clean tokens' GPU time: above it, stamps have changed what they measure


@dataclass(frozen=True, slots=True)
class Verdict:
    """``kind`` is STARVED, STALLED, BANDWIDTH, KERNELS or UNDECIDED; ``line`` says it with the figures it rests on."""

    kind: str
    line: str


def verdict(
    *,
    period_us: float,
    starved_us: float,
    gpu_total_us: float,
    kernels_us: float | None,
    bubbles_us: float | tuple[float, float],
    token_bytes: int,
    probe_gb_s: float | None,
    mode: str = "",
    barriers: str = "",
) -> Verdict:
    """Judge medians: period, starved and gpu_total of clean tokens, kernels and bubbles of stamped ones.

    ``bubbles_us`` is a pair of bounds, and ``kernels_us`` None, where kernels have no clock. The larger of the two
    losses is the verdict if it is a tenth of the period or more; without such a loss it is how near the kernels come
    to the bus: ``token_bytes`` over their time against the probe. Where ``mode`` or ``barriers`` have weights on their
    way before a kernel starts, the bus is at work in bubbles too: its share then lies between that of kernels with
    bubbles and that of kernels alone. UNDECIDED where the bounds allow more than one, and
    where stamped kernels and bubbles are together a quarter longer than clean tokens take.
    """
    low_us, high_us = bubbles_us if isinstance(bubbles_us, tuple) else (bubbles_us, bubbles_us)
    least_us = LOSS_FRACTION * period_us
    kinds = {_loss(starved_us, bubble_us, least_us) for bubble_us in (low_us, high_us)}
    # without a clock the kernels' time is at least what the bubbles leave of the GPU's, and at most all of it
    slow_us, fast_us = (
        (gpu_total_us - low_us, max(gpu_total_us - high_us, 0.0)) if kernels_us is None else (kernels_us,) * 2
    )
    slowest_us = slow_us + low_us if loads_ahead(mode, barriers) else slow_us
    bus = [token_bytes / (us * 1e3) / probe_gb_s for us in (slowest_us, fast_us) if probe_gb_s and us > 0]
    if kinds == {None}:
        kinds = {BANDWIDTH if fraction >= BUS_FRACTION else KERNELS for fraction in bus} or {KERNELS}
    kind = kinds.pop() or KERNELS if len(kinds) == 1 else UNDECIDED

    digits = 2 if period_us >= 1e3 else 3
    starved, bubbles = f"{starved_us / 1e3:.{digits}f}", _range(low_us / 1e3, high_us / 1e3, digits)
    period = f"{period_us / 1e3:.{digits}f} ms"
    kernels = f"kernels {_range(fast_us / 1e3, slow_us / 1e3, digits)}"
    percent = f"{_range(100 * min(bus), 100 * max(bus), 0)}%" if bus else ""
    at_bus = f"{kernels} at {percent} of the bus" if bus else kernels
    reach = f"kernels reach {percent} of the bus" if bus else "kernels, of a bus not measured"
    losses = f"bubbles {bubbles}, starved {starved}"
    if kernels_us is not None and kernels_us + low_us > _STAMPED_FRACTION * gpu_total_us:
        clean = f"{gpu_total_us / 1e3:.{digits}f} ms"
        return Verdict(
            UNDECIDED,
            f"undecided: stamps make tokens longer, {kernels} and bubbles {bubbles} where clean ones take {clean}",
        )
    joints = "waits in memory" if waits_in_memory(mode, barriers) else "barriers"
    lines = {
        STARVED: f"GPU starved by the CPU: {starved} of {period}, bubbles {bubbles}, {at_bus}",
        STALLED: f"GPU stalled on {joints}: {bubbles} of {period}, starved {starved}, {at_bus}",
        BANDWIDTH: f"bound by bandwidth: {percent} of the bus, {kernels} of {period}, {losses}",
        KERNELS: f"{reach}: {kernels} of {period}, {losses}",
        UNDECIDED: f"undecided: bubbles {bubbles} of {period}, starved {starved}, {at_bus}",
    }
    return Verdict(kind, lines[kind])


def _loss(starved_us: float, bubbles_us: float, least_us: float) -> str | None:
    if max(starved_us, bubbles_us) < least_us:
        return None
    return STARVED if starved_us >= bubbles_us else STALLED


def _range(low: float, high: float, digits: int) -> str:
    one, other = f"{low:.{digits}f}", f"{high:.{digits}f}"
    return one if one == other else f"{one} to {other}"
