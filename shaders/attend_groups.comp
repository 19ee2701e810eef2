#version 460
// Decode attention for GPUs: one workgroup of LANES a (KV head, or part of its query heads; token range of SPLIT). All
// its keys and values are loaded before the first is used, each once for HEADS query heads. LANES_A_TOKEN lanes share a
// token, eight dimensions a load each. The unnormalised results of a range go to partials; with MERGE the last workgroup
// of a head to arrive joins the ranges as attend_merge.comp does.
#include "binding.glsl"
#include "state.glsl"
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

layout(local_size_x = LANES) in;

BUFFER(0, readonly, Q, vec4, q)
BUFFER(1, readonly, KCache, uvec4, k_cache)
BUFFER(2, readonly, VCache, uvec4, v_cache)
BUFFER(3, readonly, State, uint, state)
BUFFER(4, COHERENT, Out, float, result)
BUFFER(5, COHERENT, Sums, vec2, sums)
BUFFER(6, writeonly, Merged, float, merged)
BUFFER(7, READWRITE, Arrivals, uint, arrivals)
PUSH_BEGIN
    ADDRESS(Q, q)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    ADDRESS(Out, result)
    ADDRESS(Sums, sums)
    ADDRESS(Merged, merged)
    ADDRESS(Arrivals, arrivals)
    uint heads;
    uint kv_heads;
    uint context;
    uint tokens;
    float scale;
PUSH_END

#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define HEAD_UNITS (HEAD_DIM / 8u)                                  // 16-byte units of a key
#define UNITS_A_LANE ((HEAD_UNITS + LANES_A_TOKEN - 1u) / LANES_A_TOKEN)
#define AT_ONCE (LANES / LANES_A_TOKEN)                             // tokens in one step
#define STEPS (SPLIT / AT_ONCE)
#define LOWEST -3.0e38

shared float tops[SUBGROUPS * HEADS];
shared float totals[SUBGROUPS * HEADS];
shared float parts[SUBGROUPS * HEADS * HEAD_DIM];

void unpack8(uvec4 raw, out float v[8]) {
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        const vec2 two = unpackHalf2x16(raw[i]);
        v[2u * i] = two.x;
        v[2u * i + 1u] = two.y;
    }
}

#ifdef MERGE
shared uint arrived;
shared float factors[LANES];
shared float range_totals[LANES];

// Joins the ranges of HEADS heads, in the order and with the roundings of attend_merge.glsl.
void merge(uint first_head, uint splits) {
    const uint t = gl_LocalInvocationIndex;
    const uint width = heads * HEAD_DIM;
    for (uint h = 0u; h < HEADS; ++h) {
        const uint head = first_head + h;
        float top = LOWEST;
        for (uint s = t; s < splits; s += LANES) top = max(top, sums.data[s * heads + head].x);
        [[unroll]] for (uint m = SUBGROUP_SIZE / 2u; m > 0u; m /= 2u) top = max(top, subgroupShuffleXor(top, m));
        barrier();
        if (t % SUBGROUP_SIZE == 0u) tops[t / SUBGROUP_SIZE] = top;
        barrier();
        [[unroll]] for (uint i = 0u; i < SUBGROUPS; ++i) top = max(top, tops[i]);
        float values[(HEAD_DIM + LANES - 1u) / LANES];
        [[unroll]] for (uint n = 0u; n < values.length(); ++n) values[n] = 0.0;
        float total = 0.0;
        for (uint start = 0u; start < splits; start += LANES) {
            const uint count = min(LANES, splits - start);
            barrier();
            if (t < count) {
                const vec2 sum = sums.data[(start + t) * heads + head];
                factors[t] = exp(sum.x - top);
                range_totals[t] = sum.y;
            }
            barrier();
            for (uint s = 0u; s < count; s += 8u) {  // eight loads in flight
                float loaded[8];
                [[unroll]] for (uint n = 0u; n < values.length(); ++n) {
                    const uint d = min(n * LANES + t, HEAD_DIM - 1u);
                    [[unroll]] for (uint i = 0u; i < 8u; ++i) {
                        loaded[i] = result.data[(start + min(s + i, count - 1u)) * width + head * HEAD_DIM + d];
                    }
                    [[unroll]] for (uint i = 0u; i < 8u; ++i) {
                        if (s + i < count) values[n] = fma(factors[s + i], loaded[i], values[n]);
                    }
                }
                for (uint i = s; i < min(s + 8u, count); ++i) total = fma(factors[i], range_totals[i], total);
            }
        }
        [[unroll]] for (uint n = 0u; n < values.length(); ++n) {
            const uint d = n * LANES + t;
            if (d < HEAD_DIM) merged.data[head * HEAD_DIM + d] = values[n] / total;
        }
    }
}
#endif

void kernel() {
    const uint t = gl_LocalInvocationIndex;
    const uint position = state.data[STATE_POSITION];
    const uint first = gl_WorkGroupID.x * SPLIT;
    if (first > position) return;
    const uint first_head = gl_WorkGroupID.y * HEADS;
    const uint kv_base = first_head / (heads / kv_heads) * context;
    const uint lane = t % LANES_A_TOKEN, slot = t / LANES_A_TOKEN;
    uvec4 ks[STEPS * UNITS_A_LANE], vs[STEPS * UNITS_A_LANE];
    [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
        const uint token = min(first + s * AT_ONCE + slot, position);
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
            const uint unit = min(c * LANES_A_TOKEN + lane, HEAD_UNITS - 1u);
            ks[s * UNITS_A_LANE + c] = k_cache.data[(kv_base + token) * HEAD_UNITS + unit];
        }
    }
    [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
        const uint token = min(first + s * AT_ONCE + slot, position);
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
            const uint unit = min(c * LANES_A_TOKEN + lane, HEAD_UNITS - 1u);
            vs[s * UNITS_A_LANE + c] = v_cache.data[(kv_base + token) * HEAD_UNITS + unit];
        }
    }
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
        const bool past = first + s * AT_ONCE + slot > position;
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
            [[unroll]] for (uint m = LANES_A_TOKEN / 2u; m > 0u; m /= 2u) dots[h] += subgroupShuffleXor(dots[h], m);
            weights[h * STEPS + s] = past ? LOWEST : dots[h];
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
            const bool past = first + s * AT_ONCE + slot > position;
            weights[h * STEPS + s] = past ? 0.0 : exp(weights[h * STEPS + s] - top);
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
            [[unroll]] for (uint i = 0u; i < HEADS * 8u; ++i) {
                parts[(t / SUBGROUP_SIZE * HEADS + i / 8u) * HEAD_DIM + unit * 8u + i % 8u] = acc[i];
            }
        }
    }
    barrier();
    const uint splits = position / SPLIT + 1u;
    for (uint i = t; i < HEADS * HEAD_DIM; i += LANES) {
        float value = parts[i];
        [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) value += parts[g * HEADS * HEAD_DIM + i];
#ifdef MERGE
        if (splits == 1u) {  // what joining a single range gives, to the bit
            float total = totals[i / HEAD_DIM];
            [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) total += totals[g * HEADS + i / HEAD_DIM];
            merged.data[first_head * HEAD_DIM + i] = value / total;
            continue;
        }
#endif
        result.data[(gl_WorkGroupID.x * heads + first_head) * HEAD_DIM + i] = value;
    }
    if (t < HEADS) {
        float total = totals[t], top = tops[t];
        [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) {
            total += totals[g * HEADS + t];
            top = max(top, tops[g * HEADS + t]);
        }
        sums.data[gl_WorkGroupID.x * heads + first_head + t] = vec2(top, total);
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
