// The end of the stacked Q, K and V projection: a pair of dimensions, turned where it is of q or k, goes to y or, in
// float16, to the KV cache. Pairs are numbered through the heads: those of q, of k, of v.
// The includer has the buffers y, k_cache and v_cache, the push constants heads, kv_heads and context, and of heads
// HEAD_PAIRS, ROTATED_PAIRS, PAIR_HEAD(pair), PAIR_IN_HEAD(pair) and rope_pair(p).
#include "rope_turn.glsl"

void store_pair(vec2 value, uint pair, vec2 angle, uint position) {
    const uint head = PAIR_HEAD(pair), p = PAIR_IN_HEAD(pair), head_size = HEAD_PAIRS * 2u;
    const uvec2 place = rope_pair(p);
    if (head < heads + kv_heads && p < ROTATED_PAIRS) value = rope_turn(value, angle);
    if (head < heads) {
        y.data[head * head_size + place.x] = value.x;
        y.data[head * head_size + place.y] = value.y;
        return;
    }
    const bool is_k = head < heads + kv_heads;
    const uvec2 target = ((head - heads - (is_k ? 0u : kv_heads)) * context + position) * head_size + place;
    if (is_k) {
        k_cache.data[target.x] = float16_t(value.x);
        k_cache.data[target.y] = float16_t(value.y);
    } else {
        v_cache.data[target.x] = float16_t(value.x);
        v_cache.data[target.y] = float16_t(value.y);
    }
}
