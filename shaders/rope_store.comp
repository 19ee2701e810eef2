#version 460
// rope.comp on q and on k, then store_kv.comp, as one dispatch: q turns in place, k and v go to the KV cache.
// One invocation a pair of dimensions: first the pairs of q, then those of k (each with its pair of v).
#extension GL_EXT_shader_16bit_storage : require
#include "binding.glsl"
#include "state.glsl"
#include "rope.glsl"

layout(local_size_x = 64) in;

BUFFER(0, READWRITE, Q, float, q)
BUFFER(1, readonly, K, float, k)
BUFFER(2, readonly, V, float, v)
BUFFER(3, readonly, Table, vec2, table)
BUFFER(4, READWRITE, KCache, float16_t, k_cache)
BUFFER(5, READWRITE, VCache, float16_t, v_cache)
BUFFER(6, readonly, State, uint, state)
PUSH_BEGIN
    ADDRESS(Q, q)
    ADDRESS(K, k)
    ADDRESS(V, v)
    ADDRESS(Table, table)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    uint heads;
    uint kv_heads;
    uint tokens;
    uint context;
PUSH_END

void kernel() {
    uint i = gl_GlobalInvocationID.x;
    const uint q_pairs = tokens * heads * HEAD_PAIRS;
    const bool is_q = i < q_pairs;
    if (!is_q) i -= q_pairs;
    const uint wide = is_q ? heads : kv_heads;
    const uint p = i % HEAD_PAIRS, row = i / HEAD_PAIRS, token = row / wide;  // row: over tokens and heads
    if (token >= tokens || state.data[STATE_DONE] != 0) return;
    const uint position = state.data[STATE_POSITION] + token;
    const uvec2 pair = rope_pair(p), from = pair + row * HEAD_DIM;
    vec2 value = is_q ? vec2(q.data[from.x], q.data[from.y]) : vec2(k.data[from.x], k.data[from.y]);
    if (p < ROTATED / 2) value = rope_turn(value, table.data[position * (ROTATED / 2) + p]);
    if (is_q) {
        q.data[from.x] = value.x;
        q.data[from.y] = value.y;
        return;
    }
    const uvec2 target = ((row % wide) * context + position) * HEAD_DIM + pair;
    k_cache.data[target.x] = float16_t(value.x);
    k_cache.data[target.y] = float16_t(value.y);
    v_cache.data[target.x] = float16_t(v.data[from.x]);
    v_cache.data[target.y] = float16_t(v.data[from.y]);
}

#include "main.glsl"
