#version 460
// Decode attention for GPUs: one workgroup of LANES a (KV head, or part of its query heads; token range of SPLIT, of
// which those that are seen are numbered from 0). All its keys and values are loaded before the first is used, each
// once for HEADS query heads. LANES_A_TOKEN lanes share a token, eight dimensions a load each. The unnormalised results of
// a range go to partials; with MERGE the last workgroup of a head to arrive joins the ranges as attend_merge.comp does.
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"
#include "activation.glsl"
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x = LANES) in;

BUFFER(0, readonly, Q, vec4, q)
BUFFER(1, readonly, KCache, uvec4, k_cache)
BUFFER(2, readonly, VCache, uvec4, v_cache)
BUFFER(3, readonly, State, uint, state)
BUFFER(4, COHERENT, Out, vec4, result)
BUFFER(5, COHERENT, Sums, vec2, sums)
BUFFER(6, writeonly, Merged, vec4, merged)
BUFFER(7, READWRITE, Arrivals, uint, arrivals)
BUFFER(8, readonly, Gate, vec4, gate)
PUSH_BEGIN
    ADDRESS(Q, q)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    ADDRESS(Out, result)
    ADDRESS(Sums, sums)
    ADDRESS(Merged, merged)
    ADDRESS(Arrivals, arrivals)
    ADDRESS(Gate, gate)
    uint heads;
    uint kv_heads;
    uint context;
    uint tokens;
    float scale;
    uint window;
PUSH_END

#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define HEAD_UNITS (HEAD_DIM / 8u)                                  // 16-byte units of a key
#define UNITS_A_LANE ((HEAD_UNITS + LANES_A_TOKEN - 1u) / LANES_A_TOKEN)
#define AT_ONCE (LANES / LANES_A_TOKEN)                             // tokens in one step
#define STEPS (SPLIT / AT_ONCE)
#define LOWEST -3.0e38
#define ITEMS (HEADS * HEAD_DIM / 4)  // of the result, four dimensions each
#if ITEMS <= LANES  // a compiler that does not see it makes two turns of the loop
#define EACH_ITEM(t) if (t < ITEMS) for (uint item = t, once = 0u; once == 0u; ++once)
#else
#define EACH_ITEM(t) for (uint item = t; item < ITEMS; item += LANES)
#endif

shared float tops[SUBGROUPS * HEADS];
shared float totals[SUBGROUPS * HEADS];
shared vec4 parts[SUBGROUPS * HEADS * HEAD_DIM / 4];

bool is_unseen(uint token, uint seen, uint position) { return token < seen || token > position; }

void unpack8(uvec4 raw, out float v[8]) {
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        const vec2 two = unpackHalf2x16(raw[i]);
        v[2u * i] = two.x;
        v[2u * i + 1u] = two.y;
    }
}

#ifdef MERGE
// with GATED times the sigmoid of a gate, rounded as sigmoid_mul.comp does
void write_merged(uint i, vec4 value, float total) {
    precise vec4 joined = value / total;
#ifdef GATED
    const vec4 opening = gate.data[i];
    joined *= vec4(sigmoid(opening.x), sigmoid(opening.y), sigmoid(opening.z), sigmoid(opening.w));
#endif
    merged.data[i] = joined;
}

#define IN_FLIGHT 8u
shared uint arrived;
shared float factors[HEADS * LANES];
shared float range_totals[HEADS * LANES];

// The next ranges of one of the four sums of an item: s = first, first + 4, ... of `count` from `start` on.
void add_ranges(inout vec4 value, inout float total, uint item, uint first, uint start, uint count, uint first_head) {
    const uint local = item * 4u / HEAD_DIM, at = first_head * (HEAD_DIM / 4u) + item, width = heads * (HEAD_DIM / 4u);
    for (uint s = first; s < count; s += 4u * IN_FLIGHT) {
        vec4 loaded[IN_FLIGHT];
        [[unroll]] for (uint i = 0u; i < IN_FLIGHT; ++i) loaded[i] = result.data[(start + min(s + 4u * i, count - 1u)) * width + at];
        [[unroll]] for (uint i = 0u; i < IN_FLIGHT; ++i) {
            if (s + 4u * i < count) {
                const float factor = factors[local * LANES + s + 4u * i];
                total = fma(factor, range_totals[local * LANES + s + 4u * i], total);
                value = fma(vec4(factor), loaded[i], value);
            }
        }
    }
}

#if 4 * ITEMS <= LANES
#define CHAINS 1  // of the four sums of an item, each invocation has one
#define OWN_ITEMS 1
shared vec4 chain_values[LANES];
shared float chain_totals[LANES];
#else
#define CHAINS 4
#define OWN_ITEMS ((ITEMS + LANES - 1) / LANES)
#endif

// Joins the ranges of HEADS heads, in the order and with the roundings of attend_merge.glsl.
void merge(uint first_head, uint splits) {
    const uint t = gl_LocalInvocationIndex;
    for (uint h = t / SUBGROUP_SIZE; h < HEADS; h += SUBGROUPS) {
        float top = LOWEST;
        for (uint s = t % SUBGROUP_SIZE; s < splits; s += SUBGROUP_SIZE) top = max(top, sums.data[s * heads + first_head + h].x);
        [[unroll]] for (uint m = SUBGROUP_SIZE / 2u; m > 0u; m /= 2u) top = max(top, subgroupShuffleXor(top, m));
        if (t % SUBGROUP_SIZE == 0u) tops[h] = top;
    }
    vec4 values[OWN_ITEMS * CHAINS];
    float chain_sums[OWN_ITEMS * CHAINS];
    [[unroll]] for (uint n = 0u; n < OWN_ITEMS * CHAINS; ++n) {
        values[n] = vec4(0.0);
        chain_sums[n] = 0.0;
    }
    for (uint start = 0u; start < splits; start += LANES) {
        const uint count = min(LANES, splits - start);
        barrier();
        for (uint i = t; i < HEADS * count; i += LANES) {
            const uint h = i % HEADS, s = i / HEADS;
            const vec2 sum = sums.data[(start + s) * heads + first_head + h];
            factors[h * LANES + s] = exp(sum.x - tops[h]);
            range_totals[h * LANES + s] = sum.y;
        }
        barrier();
#if CHAINS == 1
        if (t < 4u * ITEMS) add_ranges(values[0], chain_sums[0], t % ITEMS, t / ITEMS, start, count, first_head);
#else
        [[unroll]] for (uint n = 0u; n < OWN_ITEMS * 4u; ++n) {
            const uint item = n / 4u * LANES + t;
            if (item < ITEMS) add_ranges(values[n], chain_sums[n], item, n % 4u, start, count, first_head);
        }
#endif
    }
#if CHAINS == 1
    chain_values[t] = values[0];
    chain_totals[t] = chain_sums[0];
    barrier();
    if (t < ITEMS) {
        const vec4 value = (values[0] + chain_values[t + ITEMS]) + (chain_values[t + 2u * ITEMS] + chain_values[t + 3u * ITEMS]);
        const float total = (chain_sums[0] + chain_totals[t + ITEMS]) + (chain_totals[t + 2u * ITEMS] + chain_totals[t + 3u * ITEMS]);
        write_merged(first_head * (HEAD_DIM / 4u) + t, value, total);
    }
#else
    [[unroll]] for (uint n = 0u; n < OWN_ITEMS; ++n) {
        const uint item = n * LANES + t, c = 4u * n;
        if (item < ITEMS) {
            const vec4 value = (values[c] + values[c + 1u]) + (values[c + 2u] + values[c + 3u]);
            const float total = (chain_sums[c] + chain_sums[c + 1u]) + (chain_sums[c + 2u] + chain_sums[c + 3u]);
            write_merged(first_head * (HEAD_DIM / 4u) + item, value, total);
        }
    }
#endif
}
#endif

// An invocation's keys or values, up to `newest`. All but the newest were there before this token: where that is awaited
// they are loaded meanwhile.
#define LOAD_TOKENS(values, cache, newest, wanted) \
    [[unroll]] for (uint s = 0u; s < STEPS; ++s) { \
        const uint token = clamp(first + s * AT_ONCE + slot, seen, newest); \
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) { \
            const uint unit = min(c * LANES_A_TOKEN + lane, HEAD_UNITS - 1u); \
            if (wanted) values[s * UNITS_A_LANE + c] = cache.data[(kv_base + token) * HEAD_UNITS + unit]; \
        } \
    }
#ifdef RESIDENT
#define NEWEST_AT_ONCE max(position, seen + 1u) - 1u
#else
#define NEWEST_AT_ONCE position
#endif

void kernel() {
    const uint t = gl_LocalInvocationIndex;
    const uint position = state.data[STATE_POSITION];
    const uint seen = first_seen(position, window), first_split = seen / SPLIT;
    const uint first = (first_split + gl_WorkGroupID.x) * SPLIT;
    if (first > position) return;
    const uint first_head = gl_WorkGroupID.y * HEADS;
    const uint kv_base = first_head / (heads / kv_heads) * context;
    const uint lane = t % LANES_A_TOKEN, slot = t / LANES_A_TOKEN;
    uvec4 ks[STEPS * UNITS_A_LANE], vs[STEPS * UNITS_A_LANE];
    LOAD_TOKENS(ks, k_cache, NEWEST_AT_ONCE, true)
    LOAD_TOKENS(vs, v_cache, NEWEST_AT_ONCE, true)
#ifdef RESIDENT
    AWAIT
    LOAD_TOKENS(ks, k_cache, position, token == position)
    LOAD_TOKENS(vs, v_cache, position, token == position)
#endif
    vec4 query[HEADS * UNITS_A_LANE * 2u];
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
            const uint unit = c * LANES_A_TOKEN + lane;
            const uint at = ((first_head + h) * HEAD_UNITS + min(unit, HEAD_UNITS - 1u)) * 2u;
            const float factor = unit < HEAD_UNITS ? scale : 0.0;
            query[(h * UNITS_A_LANE + c) * 2u] = q.data[at] * factor;
            query[(h * UNITS_A_LANE + c) * 2u + 1u] = q.data[at + 1u] * factor;
        }
    }
    float weights[HEADS * STEPS];
    [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
        float dots[HEADS];
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) dots[h] = 0.0;
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
            float k[8];
            unpack8(ks[s * UNITS_A_LANE + c], k);
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                [[unroll]] for (uint i = 0u; i < 8u; ++i) {
                    dots[h] = fma(query[(h * UNITS_A_LANE + c) * 2u + i / 4u][i % 4u], k[i], dots[h]);
                }
            }
        }
        const bool unseen = is_unseen(first + s * AT_ONCE + slot, seen, position);
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
            [[unroll]] for (uint m = LANES_A_TOKEN / 2u; m > 0u; m /= 2u) dots[h] += subgroupShuffleXor(dots[h], m);
            weights[h * STEPS + s] = unseen ? LOWEST : dots[h];
        }
    }
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        float top = LOWEST;
        [[unroll]] for (uint s = 0u; s < STEPS; ++s) top = max(top, weights[h * STEPS + s]);
        [[unroll]] for (uint m = LANES_A_TOKEN; m < SUBGROUP_SIZE; m *= 2u) top = max(top, subgroupShuffleXor(top, m));
        if (t % SUBGROUP_SIZE == 0u) tops[t / SUBGROUP_SIZE * HEADS + h] = top;
    }
    barrier();
    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
        float top = tops[h];
        [[unroll]] for (uint i = 1u; i < SUBGROUPS; ++i) top = max(top, tops[i * HEADS + h]);
        float sum = 0.0;
        [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
            const bool unseen = is_unseen(first + s * AT_ONCE + slot, seen, position);
            weights[h * STEPS + s] = unseen ? 0.0 : exp(weights[h * STEPS + s] - top);
            sum += weights[h * STEPS + s];
        }
        [[unroll]] for (uint m = LANES_A_TOKEN; m < SUBGROUP_SIZE; m *= 2u) sum += subgroupShuffleXor(sum, m);
        if (t % SUBGROUP_SIZE == 0u) totals[t / SUBGROUP_SIZE * HEADS + h] = sum;
    }
    [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
        const uint unit = c * LANES_A_TOKEN + lane;
        float acc[HEADS * 8u];
        [[unroll]] for (uint i = 0u; i < HEADS * 8u; ++i) acc[i] = 0.0;
        [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
            float v[8];
            unpack8(vs[s * UNITS_A_LANE + c], v);
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                [[unroll]] for (uint i = 0u; i < 8u; ++i) acc[h * 8u + i] = fma(weights[h * STEPS + s], v[i], acc[h * 8u + i]);
            }
        }
        [[unroll]] for (uint m = LANES_A_TOKEN; m < SUBGROUP_SIZE; m *= 2u) {
            [[unroll]] for (uint i = 0u; i < HEADS * 8u; ++i) acc[i] += subgroupShuffleXor(acc[i], m);
        }
        if (t % SUBGROUP_SIZE < LANES_A_TOKEN && unit < HEAD_UNITS) {
            [[unroll]] for (uint i = 0u; i < HEADS * 8u; i += 4u) {
                const uint place = (t / SUBGROUP_SIZE * HEADS + i / 8u) * (HEAD_DIM / 4u) + unit * 2u + i % 8u / 4u;
                parts[place] = vec4(acc[i], acc[i + 1u], acc[i + 2u], acc[i + 3u]);
            }
        }
    }
    barrier();
    const uint splits = position / SPLIT - first_split + 1u;
    EACH_ITEM(t) {
        const uint h = item * 4u / HEAD_DIM;
        vec4 value = parts[item];
        float total = totals[h];
        [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) {
            value += parts[g * ITEMS + item];
            total += totals[g * HEADS + h];
        }
#ifdef MERGE
        if (splits == 1u) {  // what joining a single range gives, to the bit
            write_merged(first_head * (HEAD_DIM / 4u) + item, value, total);
            continue;
        }
#endif
        result.data[(gl_WorkGroupID.x * heads + first_head) * (HEAD_DIM / 4u) + item] = value;
        if (item % (HEAD_DIM / 4u) == 0u) {
            float top = tops[h];
            [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) top = max(top, tops[g * HEADS + h]);
            sums.data[gl_WorkGroupID.x * heads + first_head + h] = vec2(top, total);
        }
    }
#ifdef MERGE
    if (splits == 1u) return;
    memoryBarrierBuffer();
    barrier();
    if (t == 0u) arrived = atomicAdd(arrivals.data[gl_WorkGroupID.y], 1u);
    barrier();
    if (arrived + 1u < splits) return;
    memoryBarrierBuffer();
    merge(first_head, splits);
    if (t == 0u) arrivals.data[gl_WorkGroupID.y] = 0u;
#endif
}

#include "main.glsl"
