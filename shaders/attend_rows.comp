#version 460
// Attention for software devices: one invocation a (query head, token range), no shared memory.
// Decode: the range is SPLIT tokens of the KV cache, those seen being numbered from 0, and its unnormalised result
// goes to partials. PREFILL: the range is all that one of the chunk's queries sees, and its result is final; lanes are
// queries, so that they read the same keys. MERGE: the last workgroup of a head to arrive joins the ranges, as
// attend_merge.comp does.
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = SUBGROUP_SIZE) in;

BUFFER(0, readonly, Q, vec4, q)
BUFFER(1, readonly, KCache, uvec4, k_cache)
BUFFER(2, readonly, VCache, uvec4, v_cache)
BUFFER(3, readonly, State, uint, state)
BUFFER(4, COHERENT, Out, vec4, result)
BUFFER(5, COHERENT, Sums, vec2, sums)
BUFFER(6, writeonly, Merged, float, merged)
BUFFER(7, READWRITE, Arrivals, uint, arrivals)
BUFFER(8, readonly, Gate, float, gate)
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

#ifdef MERGE
#extension GL_KHR_shader_subgroup_ballot : require
#define PART(i) result.data[(i) / 4][(i) % 4]
#include "attend_merge.glsl"

// A workgroup is one subgroup, so its lanes need no barrier among themselves.
void merge(uint head, uint position) {
    const uint splits = position / SPLIT - first_seen(position, window) / SPLIT + 1;
    const uint expected = (splits - 1) / SUBGROUP_SIZE + 1;
    if (gl_WorkGroupID.x >= expected) return;
    memoryBarrierBuffer();
    uint before = 0;
    if (subgroupElect()) before = atomicAdd(arrivals.data[head], 1);
    if (subgroupBroadcastFirst(before) + 1 < expected) return;
    memoryBarrierBuffer();
    for (uint d = gl_LocalInvocationIndex; d < HEAD_DIM; d += SUBGROUP_SIZE) {
        merge_element(head * HEAD_DIM + d, splits);
    }
    if (subgroupElect()) arrivals.data[head] = 0;
}
#endif

void attend(uint head, uint lane, uint position) {
#ifdef PREFILL
    if (lane >= tokens) return;
    const uint end = position + lane + 1, first = first_seen(end - 1, window);
    const uint row = lane * heads + head;
#else
    const uint seen = first_seen(position, window), start = (seen / SPLIT + lane) * SPLIT;
    if (start > position) return;
    const uint first = max(start, seen), end = min(start + SPLIT, position + 1);
    const uint row = head;
#endif
    // unrolled, whatever the size: an array indexed by a variable is read and written lane by lane
    vec4 query[HEAD_DIM / 4];
    vec4 acc[HEAD_DIM / 4];
    [[unroll]] for (uint d = 0; d < HEAD_DIM / 4; ++d) {
        query[d] = q.data[row * (HEAD_DIM / 4) + d] * scale;
        acc[d] = vec4(0.0);
    }
    float top = -3.0e38, total = 0.0;
    uint base = ((head / (heads / kv_heads)) * context + first) * (HEAD_DIM / 8);
    for (uint token = first; token < end; ++token) {
        vec4 dots = vec4(0.0);
        [[unroll]] for (uint d = 0; d < HEAD_DIM / 8; ++d) {
            const uvec4 raw = k_cache.data[base + d];
            dots = fma(query[2 * d], vec4(unpackHalf2x16(raw.x), unpackHalf2x16(raw.y)), dots);
            dots = fma(query[2 * d + 1], vec4(unpackHalf2x16(raw.z), unpackHalf2x16(raw.w)), dots);
        }
        const float score = (dots.x + dots.y) + (dots.z + dots.w);
        const float higher = max(top, score);
        const float shrink = exp(top - higher), weight = exp(score - higher);
        top = higher;
        total = fma(total, shrink, weight);
        [[unroll]] for (uint d = 0; d < HEAD_DIM / 8; ++d) {
            const uvec4 raw = v_cache.data[base + d];
            acc[2 * d] = fma(vec4(weight), vec4(unpackHalf2x16(raw.x), unpackHalf2x16(raw.y)), acc[2 * d] * shrink);
            acc[2 * d + 1] = fma(vec4(weight), vec4(unpackHalf2x16(raw.z), unpackHalf2x16(raw.w)), acc[2 * d + 1] * shrink);
        }
        base += HEAD_DIM / 8;
    }
#ifdef PREFILL
    [[unroll]] for (uint d = 0; d < HEAD_DIM / 4; ++d) result.data[row * (HEAD_DIM / 4) + d] = acc[d] / total;
#else
    const uint part = lane * heads + head;
    [[unroll]] for (uint d = 0; d < HEAD_DIM / 4; ++d) result.data[part * (HEAD_DIM / 4) + d] = acc[d];
    sums.data[part] = vec2(top, total);
#endif
}

void kernel() {
    const uint head = gl_WorkGroupID.y, position = state.data[STATE_POSITION];
    attend(head, gl_GlobalInvocationID.x, position);  // decode: a lane is a range; prefill: a query
#ifdef MERGE
    merge(head, position);
#endif
}

#include "main.glsl"
