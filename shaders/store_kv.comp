#version 460
// Puts k and v (tokens, kv_heads, HEAD_DIM) into the KV cache (kv_heads, context, HEAD_DIM) as float16,
// token t at the state's position + t. One invocation an element.
#extension GL_EXT_shader_16bit_storage : require
#include "binding.glsl"
#include "state.glsl"

layout(local_size_x = 64) in;

BUFFER(0, readonly, K, float, k)
BUFFER(1, readonly, V, float, v)
BUFFER(2, READWRITE, KCache, float16_t, k_cache)
BUFFER(3, READWRITE, VCache, float16_t, v_cache)
BUFFER(4, readonly, State, uint, state)
PUSH_BEGIN
    ADDRESS(K, k)
    ADDRESS(V, v)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    uint kv_heads;
    uint tokens;
    uint context;
PUSH_END

void kernel() {
    const uint i = gl_GlobalInvocationID.x;
    if (i >= tokens * kv_heads * HEAD_DIM || state.data[STATE_DONE] != 0) return;
    const uint d = i % HEAD_DIM, head = (i / HEAD_DIM) % kv_heads, token = i / (HEAD_DIM * kv_heads);
    const uint target = (head * context + state.data[STATE_POSITION] + token) * HEAD_DIM + d;
    k_cache.data[target] = float16_t(k.data[i]);
    v_cache.data[target] = float16_t(v.data[i]);
}

#include "main.glsl"
