#version 460
// Prompt attention for GPUs: a workgroup a query head and QUERIES queries, KEYS keys and then their values at a time
// through shared memory, with an online softmax. A lane has 4 queries, and every 16th of the keys and of the quads (four
// dimensions). Tiles begin at multiples of KEYS, and one that a query does not see leaves its bits as they are, so that a
// token's result does not depend on who shares its workgroup.
#extension GL_EXT_control_flow_attributes : require
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"
#include "subgroup.glsl"

layout(local_size_x = QUERIES * 4) in;

BUFFER(0, readonly, Q, vec4, q)
BUFFER(1, readonly, KCache, uvec2, k_cache)
BUFFER(2, readonly, VCache, uvec2, v_cache)
BUFFER(3, readonly, State, uint, state)
BUFFER(4, writeonly, Out, vec4, result)
PUSH_BEGIN
    ADDRESS(Q, q)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    ADDRESS(Out, result)
    uint heads;
    uint kv_heads;
    uint context;
    uint tokens;
    float scale;
    uint window;
PUSH_END

#define LANES (QUERIES * 4u)
#define QUADS (HEAD_DIM / 4u)
#define KEYS_A_LANE (KEYS / 16u)
#define QUADS_A_LANE ((QUADS + 15u) / 16u)
// one more a row than it has, so that rows start in different banks
#define ROW_QUADS (QUADS + 1u)
#define ROW_SCORES (KEYS / 4u + 1u)
shared vec4 queries[QUERIES * QUADS];
shared uvec2 tile[KEYS * ROW_QUADS];  // of keys, then of their values: float16
shared vec4 scores[QUERIES * ROW_SCORES];  // then the weights of the values
shared float shrinks[QUERIES];

vec4 tile_quad(uint at) {
    const uvec2 raw = tile[at];
    return vec4(unpackHalf2x16(raw.x), unpackHalf2x16(raw.y));
}

void kernel() {
    const uint lane = gl_LocalInvocationIndex, column = lane % 16u, first_row = lane / 16u * 4u;
    const uint head = gl_WorkGroupID.y, first = gl_WorkGroupID.x * QUERIES;
    const uint position = state.data[STATE_POSITION];
    const uint first_key = first_seen(position + first, window), end_key = position + min(first + QUERIES, tokens);
    const uint kv_base = head / (heads / kv_heads) * context;
    for (uint i = lane; i < QUERIES * QUADS; i += LANES) {
        const uint token = min(first + i / QUADS, tokens - 1u);
        queries[i] = q.data[(token * heads + head) * QUADS + i % QUADS] * scale;
    }
    vec4 sums[4][QUADS_A_LANE];
    [[unroll]] for (uint r = 0u; r < 4u; ++r) {
        [[unroll]] for (uint n = 0u; n < QUADS_A_LANE; ++n) sums[r][n] = vec4(0.0);
    }
    // four lanes share a query's softmax
    const uint own_row = lane / 4u, part = lane % 4u;
    const uint own = position + first + own_row, own_first = first_seen(own, window);
    float top = -3.0e38, total = 0.0;
    for (uint start = first_key / KEYS * KEYS; start < end_key; start += KEYS) {
        barrier();
        for (uint i = lane; i < KEYS * QUADS; i += LANES) {
            const uint key = start + i / QUADS;
            tile[i / QUADS * ROW_QUADS + i % QUADS] = k_cache.data[(kv_base + min(key, end_key - 1u)) * QUADS + i % QUADS];
        }
        barrier();
        float dots[4][KEYS_A_LANE];
        [[unroll]] for (uint r = 0u; r < 4u; ++r) {
            [[unroll]] for (uint n = 0u; n < KEYS_A_LANE; ++n) dots[r][n] = 0.0;
        }
        for (uint d = 0u; d < QUADS; ++d) {
            vec4 keys[KEYS_A_LANE];
            [[unroll]] for (uint n = 0u; n < KEYS_A_LANE; ++n) keys[n] = tile_quad((n * 16u + column) * ROW_QUADS + d);
            [[unroll]] for (uint r = 0u; r < 4u; ++r) {
                const vec4 query = queries[(first_row + r) * QUADS + d];
                [[unroll]] for (uint n = 0u; n < KEYS_A_LANE; ++n) {
                    dots[r][n] = fma(query.w, keys[n].w, fma(query.z, keys[n].z, fma(query.y, keys[n].y, fma(query.x, keys[n].x, dots[r][n]))));
                }
            }
        }
        [[unroll]] for (uint r = 0u; r < 4u; ++r) {
            [[unroll]] for (uint n = 0u; n < KEYS_A_LANE; ++n) {
                const uint key = n * 16u + column;
                scores[(first_row + r) * ROW_SCORES + key / 4u][key % 4u] = dots[r][n];
            }
        }
        barrier();
        for (uint i = lane; i < KEYS * QUADS; i += LANES) {
            const uint key = start + i / QUADS;
            const bool there = key >= first_key && key < end_key;  // what nobody sees may be anything, NaN too
            tile[i / QUADS * ROW_QUADS + i % QUADS] = there ? v_cache.data[(kv_base + key) * QUADS + i % QUADS] : uvec2(0u);
        }
        float highest = -3.0e38;
        [[unroll]] for (uint n = 0u; n < KEYS / 4u; ++n) {
            const uint key = start + n * 4u + part;
            const float score = scores[own_row * ROW_SCORES + n][part];
            if (key >= own_first && key <= own) highest = max(highest, score);
        }
        highest = max(highest, subgroupShuffleXor(highest, 1u));
        highest = max(highest, subgroupShuffleXor(highest, 2u));
        const float higher = max(top, highest);
        const float shrink = exp(top - higher);
        top = higher;
        float sum = 0.0;
        [[unroll]] for (uint n = 0u; n < KEYS / 4u; ++n) {
            const uint key = start + n * 4u + part;
            const float score = scores[own_row * ROW_SCORES + n][part];
            const float weight = key >= own_first && key <= own ? exp(score - top) : 0.0;
            scores[own_row * ROW_SCORES + n][part] = weight;
            sum += weight;
        }
        sum += subgroupShuffleXor(sum, 1u);
        sum += subgroupShuffleXor(sum, 2u);
        total = fma(total, shrink, sum);
        if (part == 0u) shrinks[own_row] = shrink;
        barrier();
        [[unroll]] for (uint r = 0u; r < 4u; ++r) {
            const vec4 factor = vec4(shrinks[first_row + r]);
            [[unroll]] for (uint n = 0u; n < QUADS_A_LANE; ++n) sums[r][n] *= factor;
        }
        for (uint key = 0u; key < KEYS; key += 4u) {
            vec4 weights[4];
            [[unroll]] for (uint r = 0u; r < 4u; ++r) weights[r] = scores[(first_row + r) * ROW_SCORES + key / 4u];
            [[unroll]] for (uint n = 0u; n < QUADS_A_LANE; ++n) {
                const uint quad = n * 16u + column;
                if (QUADS % 16u == 0u || quad < QUADS) {
                    [[unroll]] for (uint k = 0u; k < 4u; ++k) {
                        const vec4 value = tile_quad((key + k) * ROW_QUADS + quad);
                        [[unroll]] for (uint r = 0u; r < 4u; ++r) sums[r][n] = fma(vec4(weights[r][k]), value, sums[r][n]);
                    }
                }
            }
        }
    }
    barrier();
    if (part == 0u) shrinks[own_row] = 1.0 / total;
    barrier();
    [[unroll]] for (uint r = 0u; r < 4u; ++r) {
        const uint token = first + first_row + r;
        [[unroll]] for (uint n = 0u; n < QUADS_A_LANE; ++n) {
            const uint quad = n * 16u + column;
            if (token < tokens && quad < QUADS) {
                result.data[(token * heads + head) * QUADS + quad] = sums[r][n] * shrinks[first_row + r];
            }
        }
    }
}

#include "main.glsl"
