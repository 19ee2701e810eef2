#version 460
// head_norm.comp on q and on k, then rope_store.comp, as one dispatch. One workgroup a head: the q heads, then the k heads
// (each with its v), of token gl_WorkGroupID.y.
#extension GL_EXT_shader_16bit_storage : require
#include "binding.glsl"
#include "state.glsl"
#include "rope.glsl"

layout(local_size_x = SUBGROUP_SIZE) in;

BUFFER(0, READWRITE, Q, float, q)
BUFFER(1, readonly, K, float, k)
BUFFER(2, readonly, V, float, v)
BUFFER(3, readonly, QWeight, float, q_weight)
BUFFER(4, readonly, KWeight, float, k_weight)
BUFFER(5, readonly, Table, vec2, table)
BUFFER(6, READWRITE, KCache, float16_t, k_cache)
BUFFER(7, READWRITE, VCache, float16_t, v_cache)
BUFFER(8, readonly, State, uint, state)
PUSH_BEGIN
    ADDRESS(Q, q)
    ADDRESS(K, k)
    ADDRESS(V, v)
    ADDRESS(QWeight, q_weight)
    ADDRESS(KWeight, k_weight)
    ADDRESS(Table, table)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    uint heads;
    uint kv_heads;
    uint context;
    float eps;
PUSH_END

bool is_q;
uint base;
#define HEAD_ELEMENT(i) (is_q ? q.data[base + (i)] : k.data[base + (i)])
#include "head_norm.glsl"

float normed_element(uint i, float factor) {
    return head_normed(HEAD_ELEMENT(i), factor, is_q ? q_weight.data[i] : k_weight.data[i]);
}

void kernel() {
    if (state.data[STATE_DONE] != 0) return;
    is_q = gl_WorkGroupID.x < heads;
    const uint head = is_q ? gl_WorkGroupID.x : gl_WorkGroupID.x - heads;
    const uint token = gl_WorkGroupID.y, position = state.data[STATE_POSITION] + token;
    base = (token * (is_q ? heads : kv_heads) + head) * HEAD_DIM;
    const float factor = head_norm_factor(eps);
    for (uint p = gl_LocalInvocationIndex; p < HEAD_PAIRS; p += SUBGROUP_SIZE) {
        const uvec2 pair = rope_pair(p);
        vec2 value = vec2(normed_element(pair.x, factor), normed_element(pair.y, factor));
        if (p < ROTATED / 2) value = rope_turn(value, table.data[position * (ROTATED / 2) + p]);
        if (is_q) {
            q.data[base + pair.x] = value.x;
            q.data[base + pair.y] = value.y;
        } else {
            const uvec2 target = (head * context + position) * HEAD_DIM + pair;
            k_cache.data[target.x] = float16_t(value.x);
            k_cache.data[target.y] = float16_t(value.y);
            v_cache.data[target.x] = float16_t(v.data[base + pair.x]);
            v_cache.data[target.y] = float16_t(v.data[base + pair.y]);
        }
    }
}

#include "main.glsl"
