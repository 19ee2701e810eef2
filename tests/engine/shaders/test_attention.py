"""RoPE, KV cache and attention kernels against float64 numpy, both device kinds' variants."""

from __future__ import annotations

from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

from engine.program.attend_division import LEAST_RANGE_TOKENS, attended_ranges, sharing_workgroups
from engine.program.small_kernels import attend_defines, prompt_defines
from tests.engine.gpu import POISON, Gpu
from tests.engine.weight_data import assert_within, fresh_random, norm_error


@pytest.fixture(scope="module")
def gpu():
    with Gpu() as device:
        yield device


def state_at(gpu: Gpu, position: int):
    words = np.zeros(128, np.uint32)
    words[0] = position
    return gpu.array(words)


def rope_table(context: int, rotated: int) -> np.ndarray:
    angles = np.arange(context)[:, None] * 1e4 ** (-np.arange(0, rotated, 2) / rotated)
    return np.stack((np.cos(angles), np.sin(angles)), -1)


def rotate(x: np.ndarray, table: np.ndarray, position: int, rotated: int, halves: bool) -> np.ndarray:
    """x (tokens, heads, head_size) float64, turned."""
    out = x.copy()
    for token in range(len(x)):
        for pair in range(rotated // 2):
            i, j = (pair, pair + rotated // 2) if halves else (2 * pair, 2 * pair + 1)
            cos, sin = table[position + token, pair]
            out[token, :, i] = x[token, :, i] * cos - x[token, :, j] * sin
            out[token, :, j] = x[token, :, i] * sin + x[token, :, j] * cos
    return out


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(("size", "rotated", "tokens", "position"), [(64, 64, 1, 5), (24, 16, 3, 0), (128, 32, 7, 40)])
def test_rope_and_store_agree_with_numpy_and_with_each_other(gpu, halves, size, rotated, tokens, position):
    rng = fresh_random()
    heads, kv_heads, context = 6, 2, 64
    q, k, v = (rng.normal(size=(tokens, n, size)).astype(np.float32) for n in (heads, kv_heads, kv_heads))
    table = rope_table(context, rotated)
    tables, state = gpu.array(table.astype(np.float32)), state_at(gpu, position)
    defines = {"HEAD_DIM": size, "ROTATED": rotated} | ({"ROPE_HALVES": 1} if halves else {})
    cache_bytes = kv_heads * context * size * 2

    q1, k1, v1 = gpu.array(q), gpu.array(k), gpu.array(v)
    caches = [gpu.poisoned(cache_bytes) for _ in range(4)]
    for x, n in ((q1, heads), (k1, kv_heads)):
        groups = -(-tokens * n * rotated // 2 // 64)
        gpu.dispatch("rope", (x, tables, state), (n, tokens), (groups, 1, 1), defines)
    groups = -(-tokens * kv_heads * size // 64)
    head = {"HEAD_DIM": size}
    gpu.dispatch("store_kv", (k1, v1, *caches[:2], state), (kv_heads, tokens, context), (groups, 1, 1), head)

    q2, k2, v2 = gpu.array(q), gpu.array(k), gpu.array(v)
    groups = -(-tokens * (heads + kv_heads) * size // 2 // 64)
    buffers = (q2, k2, v2, tables, *caches[2:], state)
    gpu.dispatch("rope_store", buffers, (heads, kv_heads, tokens, context), (groups, 1, 1), defines)

    expected = rotate(q.astype(np.float64), table, position, rotated, halves)
    # a pair's sine and cosine, products and sum: a few roundings of the larger of the two
    assert_within(gpu.read(q1), expected, np.full(expected.shape, 1e-6 * np.abs(q).max()))
    assert np.array_equal(gpu.read(q1), gpu.read(q2))
    split, fused = ([gpu.read(c, np.uint16) for c in pair] for pair in (caches[:2], caches[2:]))
    assert all(np.array_equal(one, two) for one, two in zip(split, fused, strict=True))
    expected_k = rotate(k.astype(np.float64), table, position, rotated, halves)
    for raw, values in zip(fused, (expected_k, v), strict=True):
        cache = raw.view(np.float16).reshape(kv_heads, context, size)
        wrote = cache[:, position : position + tokens].transpose(1, 0, 2)
        # half a float16 step, of a value that is off by what RoPE may be
        assert_within(wrote, values.astype(np.float64), 2.0**-11 * np.abs(values) + 2e-6 * np.abs(values).max())
        rest = np.delete(raw.reshape(kv_heads, context, size), range(position, position + tokens), axis=1)
        assert (rest == 0xCBCB).all()  # nothing but the tokens' rows was touched


@pytest.mark.parametrize("halves", [False, True])
@pytest.mark.parametrize(("size", "rotated", "tokens", "position"), [(64, 64, 1, 5), (24, 16, 3, 0), (256, 64, 4, 11)])
def test_head_norm_rope_and_store_as_one(gpu, halves, size, rotated, tokens, position):
    rng = fresh_random()
    heads, kv_heads, context, eps = 5, 2, 32, 1e-2
    q, k, v = (rng.normal(size=(tokens, n, size)).astype(np.float32) for n in (heads, kv_heads, kv_heads))
    q[0, 1, 3] = 1e4
    q_weight, k_weight = (rng.normal(size=size).astype(np.float32) for _ in range(2))
    weights = [gpu.array(weight) for weight in (q_weight, k_weight)]
    table = rope_table(context, rotated)
    tables, state = gpu.array(table.astype(np.float32)), state_at(gpu, position)
    defines = {"HEAD_DIM": size, "ROTATED": rotated} | ({"ROPE_HALVES": 1} if halves else {})
    caches = [gpu.poisoned(kv_heads * context * size * 2) for _ in range(4)]

    q1, k1, v1 = gpu.array(q), gpu.array(k), gpu.array(v)
    for x, values, weight, host in ((q1, q, weights[0], q_weight), (k1, k, weights[1], k_weight)):
        gpu.dispatch("head_norm", (x, weight), (eps,), (values.shape[1], tokens, 1), {"HEAD_DIM": size})
        expected = head_norm(values, host, eps)
        assert_within(gpu.read(x), expected, norm_error(size) * np.abs(expected))
    groups = -(-tokens * (heads + kv_heads) * size // 2 // 64)
    buffers = (q1, k1, v1, tables, *caches[:2], state)
    gpu.dispatch("rope_store", buffers, (heads, kv_heads, tokens, context), (groups, 1, 1), defines)

    q2 = gpu.array(q)
    buffers = (q2, gpu.array(k), gpu.array(v), *weights, tables, *caches[2:], state)
    groups = (heads + kv_heads, tokens, 1)
    gpu.dispatch("norm_rope_store", buffers, (heads, kv_heads, context, eps), groups, defines)
    assert np.array_equal(gpu.read(q2), gpu.read(q1))
    expected = rotate(head_norm(q, q_weight, eps), table, position, rotated, halves)
    largest = np.abs(head_norm(q, q_weight, eps)).max(-1, keepdims=True)  # either value of a pair may be
    assert_within(gpu.read(q2), expected, np.broadcast_to(2 * norm_error(size) * largest, expected.shape))
    for separate, fused in zip(caches[:2], caches[2:], strict=True):
        assert np.array_equal(gpu.read(fused, np.uint16), gpu.read(separate, np.uint16))


def head_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(-1, keepdims=True) + eps) * weight


def attention(q, k, v, seen, scale) -> tuple[np.ndarray, np.ndarray]:
    """q (tokens, heads, size), k and v (kv_heads, context, size), float64; token t sees the keys seen[t], a slice.

    Returns what it must come to, and how far float32 may be off. A score may be off by some thirty roundings of its
    products' sizes, and its exp by 3 + 2 |x| steps besides, as Vulkan allows; either changes the key's weight
    by so much of itself, and so the result by that of what the value differs from it.
    """
    tokens, heads, _ = q.shape
    out, bound = np.empty_like(q), np.empty_like(q)
    for t in range(tokens):
        for h in range(heads):
            kv = h // (heads // len(k))
            keys, values = k[kv, seen[t]], v[kv, seen[t]]
            scores = keys @ q[t, h] * scale
            weights = np.exp(scores - scores.max())
            weights /= weights.sum()
            out[t, h] = weights @ values
            error = 2e-6 * scale * (np.abs(keys) @ np.abs(q[t, h])) + 2.0**-23 * (3 + 2 * (scores.max() - scores))
            bound[t, h] = (weights * error) @ (np.abs(values) + np.abs(out[t, h])) + 2e-6 * (weights @ np.abs(values))
    return out, bound


class Decode(NamedTuple):
    """A token's attention: what it reads on the device, what it must come to and within what, (heads * size)."""

    size: int
    heads: int
    kv_heads: int
    context: int
    window: int
    inputs: tuple
    expected: np.ndarray
    bound: np.ndarray

    def ranges(self, tokens: int) -> int:
        return attended_ranges(self.context, self.window, tokens)

    def run(self, gpu, variant: str, groups: tuple[int, int], defines: dict, merged: str) -> np.ndarray:
        """What the kernel makes of it; ``merged``: "apart", "here" or "gated"."""
        splits, count = self.ranges(defines["SPLIT"]), self.heads * self.size
        parts, sums = gpu.poisoned(splits * count * 4), gpu.poisoned(splits * self.heads * 8)
        out, arrivals = gpu.poisoned(count * 4), gpu.array(np.zeros(self.heads, np.uint32))
        *read, gate = self.inputs
        scalars = (
            self.heads,
            self.kv_heads,
            self.context,
            *((1,) if variant == "attend_rows" else ()),
            self.size**-0.5,
            self.window,
        )
        base = {"HEAD_DIM": self.size, "SPLIT": defines["SPLIT"]}
        more = {"apart": {}, "here": {"MERGE": 1}, "gated": {"MERGE": 1, "GATED": 1}}[merged]
        buffers = (*read, parts, sums, *((sums,) * 3 if merged == "apart" else (out, arrivals, gate)))
        for _ in range(1 if merged == "apart" else 2):  # the second run finds the counters as the first left them
            gpu.dispatch(variant, buffers, scalars, (*groups, 1), base | defines | more)
        if merged == "apart":
            scalars = (self.heads, self.window)
            gpu.dispatch("attend_merge", (parts, sums, read[3], out), scalars, (-(-count // 64), 1, 1), base)
        return gpu.read(out)


def decode(gpu, size: int, heads: int, kv_heads: int, position: int, window: int, outlier: float = 1.0) -> Decode:
    """Random inputs; a dimension each of queries, keys and values is ``outlier`` times as large."""
    rng = fresh_random()
    context = position + 70
    first = max(0, position + 1 - window) if window else 0
    q = rng.normal(size=(1, heads, size)).astype(np.float32) * 3
    k, v = (rng.normal(size=(kv_heads, context, size)).astype(np.float16) for _ in range(2))
    q[..., 3], k[..., 3] = q[..., 3] * outlier, k[..., 3] / outlier
    q[..., 5], k[..., 5] = q[..., 5] / outlier, k[..., 5] * outlier
    v[..., 7] *= outlier
    for unseen in (slice(position + 1, None), slice(0, first)):
        k[:, unseen], v[:, unseen] = np.float16("nan"), np.float16("nan")  # never read
    gate = rng.normal(size=heads * size).astype(np.float32) * 3
    wide = (item.astype(np.float64) for item in (q, k, v))
    expected, bound = (item.reshape(-1) for item in attention(*wide, [slice(first, position + 1)], size**-0.5))
    inputs = (gpu.array(q), gpu.array(k), gpu.array(v), state_at(gpu, position), gpu.array(gate))
    return Decode(size, heads, kv_heads, context, window, inputs, expected, bound)


def gated(gpu, values: np.ndarray, gate) -> np.ndarray:
    out = gpu.array(values)
    gpu.dispatch("sigmoid_mul", (out, gate), (values.size,), (-(-values.size // 64), 1, 1))
    return gpu.read(out)


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "position", "window"),
    [
        *((64, 9, 3, 0, 0), (64, 9, 3, 63, 0), (64, 4, 4, 64, 0), (128, 8, 2, 200, 0), (24, 3, 1, 129, 0)),
        *((256, 2, 1, 70, 0), (256, 4, 1, 1000, 512), (64, 4, 2, 200, 200), (64, 4, 2, 199, 200), (24, 3, 1, 300, 65)),
        *((32, 2, 1, 77, 1), (32, 2, 1, 128, 2), (128, 2, 2, 5, 130)),
    ],
)
def test_decode_attention_in_rows(gpu, size, heads, kv_heads, position, window):
    case = decode(gpu, size, heads, kv_heads, position, window)
    groups = (-(-case.ranges(LEAST_RANGE_TOKENS) // gpu.device.subgroup_size), heads)
    defines = {"SPLIT": LEAST_RANGE_TOKENS}
    found = case.run(gpu, "attend_rows", groups, defines, "apart")
    assert_within(found, case.expected, case.bound)
    assert np.array_equal(case.run(gpu, "attend_rows", groups, defines, "here"), found)
    gate = case.inputs[-1]
    assert np.array_equal(case.run(gpu, "attend_rows", groups, defines, "gated"), gated(gpu, found, gate))


@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "position", "window", "changes"),
    [
        *((64, 9, 3, 0, 0, {}), (64, 9, 3, 62, 0, {}), (24, 3, 1, 63, 0, {}), (64, 8, 2, 127, 0, {"GATED": 1})),
        *((64, 4, 2, 128, 0, {}), (128, 8, 1, 200, 0, {}), (64, 4, 4, 999, 0, {}), (80, 5, 1, 130, 0, {"GATED": 1})),
        *((128, 4, 1, 4095, 0, {}), (256, 2, 1, 1000, 512, {"GATED": 1}), (24, 3, 1, 300, 65, {})),
        *((32, 2, 1, 77, 1, {}), (96, 4, 2, 199, 200, {}), (64, 2, 1, 128, 2, {}), (256, 1, 1, 5, 130, {})),
        (64, 7, 1, 2500, 0, {"LANES": 64}),
        (64, 5, 1, 700, 300, {"CHUNKS": 1}),
    ],
)
def test_decode_attention_in_groups(gpu, size, heads, kv_heads, position, window, changes):
    """Whoever shares a workgroup, and whichever ranges it takes: the same bits."""
    case = decode(gpu, size, heads, kv_heads, position, window)
    geometry = SimpleNamespace(head_size=size, heads=heads, kv_heads=kv_heads)
    defines = attend_defines(geometry, gpu.device.subgroup_size, gpu.device.shared_bytes) | changes
    if defines.pop("CHUNKS", 2) == 1:
        defines["SPLIT"] //= 2
    kinds = ("gated",) if defines.pop("GATED", None) else ("apart", "here")
    ranges = case.ranges(defines["SPLIT"])
    one_head = defines | {"HEADS": 1}
    found = case.run(gpu, "attend_groups", (ranges, heads), one_head, "apart")
    assert_within(found, case.expected, case.bound)
    behind_gate = gated(gpu, found, case.inputs[-1])
    two_heads = [one_head | {"HEADS": 2}] if defines["HEADS"] > 2 else []
    for built in [one_head] if defines["HEADS"] == 1 else [one_head, *two_heads, defines]:
        sharers = sharing_workgroups(heads, kv_heads, built["HEADS"])
        for workgroups in sorted({1, min(ranges, 3), ranges}):
            for merged in kinds:
                same = case.run(gpu, "attend_groups", (workgroups, sharers), built, merged)
                assert np.array_equal(same, behind_gate if merged == "gated" else found), (workgroups, built, merged)


def test_decode_attention_where_several_tokens_share_a_subgroup(gpu):
    case = decode(gpu, 32, 6, 2, 200, 0)
    defines = {"LANES": 64, "LANES_A_TOKEN": 4, "SPLIT": 128, "HEADS": 4}
    for merged in ("apart", "here"):
        found = case.run(gpu, "attend_groups", (2, 2), defines, merged)
        assert_within(found, case.expected, case.bound)


def prefill_attention(gpu, variant, q, caches, state, context, window):
    """What the kernel makes of q (tokens, heads, size) float32 at the state's position."""
    tokens, heads, size = q.shape
    kv_heads = caches[0].size // (context * size * 2)
    out, sums = gpu.poisoned(q.nbytes + 64), gpu.poisoned(16)
    if variant == "attend_rows":
        defines = {"HEAD_DIM": size, "SPLIT": LEAST_RANGE_TOKENS, "PREFILL": 1}
        queries, unused = gpu.device.subgroup_size, (sums,) * 4
    else:
        defines, unused = prompt_defines(size), ()
        queries = defines["QUERIES"]
    gpu.dispatch(
        variant,
        (gpu.array(q), *caches, state, out, *unused),
        (heads, kv_heads, context, tokens, size**-0.5, window),
        (-(-tokens // queries), heads, 1),
        defines,
    )
    result = gpu.read(out)
    assert (result[q.size :].view(np.uint8) == POISON).all(), "wrote past the last token"
    return result[: q.size].reshape(q.shape)


@pytest.mark.parametrize("variant", ["attend_rows", "attend_prompt"])
@pytest.mark.parametrize(
    ("size", "heads", "kv_heads", "position", "tokens", "window"),
    [
        *((64, 9, 3, 0, 13, 0), (64, 4, 2, 60, 9, 0), (24, 3, 1, 100, 1, 0), (256, 2, 1, 0, 10, 0)),
        *((64, 4, 2, 0, 13, 5), (24, 3, 1, 90, 9, 70), (256, 4, 1, 63, 9, 66), (32, 2, 2, 20, 3, 1)),
        *((64, 2, 1, 3, 125, 0), (80, 2, 2, 30, 70, 33), (96, 3, 1, 0, 65, 0), (128, 2, 1, 31, 97, 64)),
    ],
)
def test_prefill_attention(gpu, variant, size, heads, kv_heads, position, tokens, window):
    rng = fresh_random()
    context = 128
    q = rng.normal(size=(tokens, heads, size)).astype(np.float32) * 3
    k, v = (rng.normal(size=(kv_heads, context, size)).astype(np.float16) for _ in range(2))
    seen = [slice(max(0, end - window) if window else 0, end) for end in range(position + 1, position + tokens + 1)]
    for unseen in (slice(position + tokens, None), slice(0, seen[0].start)):
        k[:, unseen], v[:, unseen] = np.float16("nan"), np.float16("nan")
    caches = [gpu.array(k), gpu.array(v)]
    result = prefill_attention(gpu, variant, q, caches, state_at(gpu, position), context, window)
    expected, bound = attention(q.astype(np.float64), k.astype(np.float64), v.astype(np.float64), seen, size**-0.5)
    assert_within(result, expected, bound)


@pytest.mark.parametrize("window", [0, 70])
@pytest.mark.parametrize("variant", ["attend_rows", "attend_prompt"])
def test_prefill_attention_does_not_depend_on_the_chunk(gpu, variant, window):
    rng = fresh_random()
    context, heads, kv_heads, size, position, tokens = 256, 4, 2, 64, 50, 150
    q = rng.normal(size=(tokens, heads, size)).astype(np.float32) * 3
    caches = [gpu.array(rng.normal(size=(kv_heads, context, size)).astype(np.float16)) for _ in range(2)]
    together = prefill_attention(gpu, variant, q, caches, state_at(gpu, position), context, window)
    for start, stop in ((0, 1), (1, 38), (38, 101), (101, 150)):
        state = state_at(gpu, position + start)
        part = prefill_attention(gpu, variant, q[start:stop], caches, state, context, window)
        np.testing.assert_array_equal(part, together[start:stop])
