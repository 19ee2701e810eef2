#version 460
// Prompt attention for GPUs: one workgroup of LANES a (query head, query), scores and softmax in shared memory, the
// keys that the query sees SPLIT tokens at a time.
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"
#include "reduce.glsl"

layout(local_size_x = LANES) in;

BUFFER(0, readonly, Q, float, q)
BUFFER(1, readonly, KCache, uvec4, k_cache)
BUFFER(2, readonly, VCache, uint, v_cache)
BUFFER(3, readonly, State, uint, state)
BUFFER(4, writeonly, Out, float, result)
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

const uint PAIRS = HEAD_DIM / 2;            // dimensions go in pairs: one 32-bit word of the cache
const uint SLICES = max(1, LANES / PAIRS);  // lanes beyond one a pair share the tokens out
shared vec4 query[HEAD_DIM / 4];
shared float weights[SPLIT];
shared vec2 sliced[SLICES * PAIRS];

void kernel() {
    const uint lane = gl_LocalInvocationIndex;
    const uint head = gl_WorkGroupID.y;
    const uint position = state.data[STATE_POSITION];
    const uint last = position + gl_WorkGroupID.x;
    const uint row = gl_WorkGroupID.x * heads + head;
    const uint kv_base = (head / (heads / kv_heads)) * context;
    for (uint d = lane; d < HEAD_DIM; d += LANES) query[d / 4][d % 4] = q.data[row * HEAD_DIM + d] * scale;
    float top = -3.0e38, total = 0.0;
    const uint slice = lane / PAIRS;
    vec2 acc[(PAIRS + LANES - 1) / LANES];
    for (uint n = 0; n < acc.length(); ++n) acc[n] = vec2(0.0);
    barrier();
    for (uint start = first_seen(last, window); start <= last; start += SPLIT) {
        const uint count = min(SPLIT, last + 1 - start);
        float highest = -3.0e38;
        for (uint token = lane; token < count; token += LANES) {
            const uint base = (kv_base + start + token) * (HEAD_DIM / 8);
            vec4 dots = vec4(0.0);
            for (uint d = 0; d < HEAD_DIM / 8; ++d) {
                const uvec4 raw = k_cache.data[base + d];
                dots = fma(query[2 * d], vec4(unpackHalf2x16(raw.x), unpackHalf2x16(raw.y)), dots);
                dots = fma(query[2 * d + 1], vec4(unpackHalf2x16(raw.z), unpackHalf2x16(raw.w)), dots);
            }
            const float score = (dots.x + dots.y) + (dots.z + dots.w);
            weights[token] = score;
            highest = max(highest, score);
        }
        const float higher = max(top, workgroup_max(highest));
        const float shrink = exp(top - higher);
        top = higher;
        float sum = 0.0;
        for (uint token = lane; token < count; token += LANES) {
            const float weight = exp(weights[token] - top);
            weights[token] = weight;
            sum += weight;
        }
        total = fma(total, shrink, workgroup_sum(sum));
        barrier();
        uint n = 0;
        for (uint pair = lane % PAIRS; slice < SLICES && pair < PAIRS; pair += LANES, ++n) {
            vec2 value = acc[n] * shrink;
            for (uint token = slice; token < count; token += SLICES) {
                const uint raw = v_cache.data[(kv_base + start + token) * PAIRS + pair];
                value = fma(vec2(weights[token]), unpackHalf2x16(raw), value);
            }
            acc[n] = value;
        }
        barrier();
    }
    uint n = 0;
    for (uint pair = lane % PAIRS; slice < SLICES && pair < PAIRS; pair += LANES, ++n) sliced[slice * PAIRS + pair] = acc[n];
    barrier();
    const float factor = 1.0 / total;
    for (uint pair = lane; pair < PAIRS; pair += LANES) {
        vec2 value = sliced[pair];
        for (uint s = 1; s < SLICES; ++s) value += sliced[s * PAIRS + pair];
        result.data[row * HEAD_DIM + 2 * pair] = value.x * factor;
        result.data[row * HEAD_DIM + 2 * pair + 1] = value.y * factor;
    }
}

#include "main.glsl"
