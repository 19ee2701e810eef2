"""What the sampling kernels must choose, in float64 and without their tricks: sort, cut, draw."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engine.decode.sampling import Sampling

NEAR_DRAW = 1e-5  # of the total: float32 sums may put a draw this close to a boundary on its other side
NEAR_MASS = 2e-6  # the same for top-p's cut
FAR = 2e-3  # of the total: further off is wrong whatever the rounding


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, int, int, int]:
    """Philox 4x32-10 (Salmon et al. 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & 0xFFFFFFFF,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & 0xFFFFFFFF,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """The draw for an absolute position, in [0, 1)."""
    return (philox4x32((position, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))[0] >> 8) / 2**24


def penalise(logits: npt.NDArray[np.float32], history: list[int], penalty: float) -> npt.NDArray[np.float32]:
    """Logits after the repetition penalty, each id of the last 64 once."""
    result = logits.copy()
    seen = np.unique([token for token in history[-64:] if token < logits.size]).astype(np.int64)
    values = result[seen]
    with np.errstate(invalid="ignore", over="ignore"):
        result[seen] = np.where(values > 0, values / np.float32(penalty), values * np.float32(penalty))
    return result


@dataclass
class Choice:
    """``token`` is right; where it is not ``certain``, so is an id for which ``distance`` is below FAR."""

    token: int
    certain: bool
    candidates: npt.NDArray[np.int64]  # ids, ascending
    cumulative: npt.NDArray[np.float64]  # of the draw's weights over them, of 1
    draw: float

    def distance(self, token: int) -> float:
        """How far the draw is from the part of [0, 1) that belongs to ``token``."""
        place = int(np.searchsorted(self.candidates, token))
        place = min(place, self.candidates.size - 1)
        start = self.cumulative[place - 1] if place else 0.0
        return float(max(start - self.draw, self.draw - self.cumulative[place], 0.0))


def choose(logits: npt.NDArray[np.float32], history: list[int], sampling: Sampling, position: int) -> Choice:
    """The id for an absolute position, with the float32 values of the parameters."""
    values = penalise(logits, history, sampling.repeat_penalty).astype(np.float64)
    ids = np.flatnonzero(~np.isnan(values))
    nothing, whole = np.zeros(1, np.int64), np.ones(1)
    if ids.size == 0:
        return Choice(0, True, nothing, whole, 0.0)
    order = ids[np.lexsort((ids, -values[ids]))]
    if sampling.temperature == 0:
        return Choice(int(order[0]), True, nothing, whole, 0.0)
    if sampling.top_k:
        order = order[: sampling.top_k]
    best = values[order[0]]
    behind = np.where(values == best, 0.0, -np.inf)  # logits less the largest, which may be infinite
    np.subtract(values, best, out=behind, where=np.isfinite(values) & np.isfinite(best) & (values != best))
    certain = True
    keep = order.size
    top_p, min_p = float(np.float32(sampling.top_p)), float(np.float32(sampling.min_p))
    if top_p < 1:
        mass = np.cumsum(np.exp(behind[order]))
        mass /= mass[-1]
        keep = int(np.searchsorted(mass, top_p)) + 1
        certain = top_p == 0 or bool(np.abs(mass - top_p).min() > NEAR_MASS)
    if min_p > 0:
        least = np.log(min_p)
        keep = min(keep, int((behind[order] >= least).sum()))
        if min_p < 1:
            certain &= bool(np.abs(behind[order] - least).min() > 4e-7 * (abs(best) + abs(least)))
    candidates = np.sort(order[:keep])
    cumulative = np.cumsum(np.exp(behind[candidates] / float(np.float32(sampling.temperature))))
    cumulative /= cumulative[-1]
    draw = uniform(sampling.seed, position)
    place = int(np.searchsorted(cumulative, draw, side="right"))
    certain &= bool(np.abs(cumulative[:-1] - draw).min(initial=1.0) > NEAR_DRAW)
    return Choice(int(candidates[place]), certain, candidates, cumulative, draw)
