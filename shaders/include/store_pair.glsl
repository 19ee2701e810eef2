// The end of the stacked Q, K and V projection: a pair of dimensions, turned where it is of q or k, goes to y or, in
// float16, to the KV cache. Pairs are numbered through the heads: those of q, of k, of v.
// The includer has the buffers y, k_cache and v_cache, rope_pair(p), HEAD_PAIRS and ROTATED_PAIRS of a head, PAIR_HEAD(pair),
// and the push constants heads, kv_heads and context.
#include "rope_turn.glsl"

void store_pair(vec2 value, uint pair, vec2 angle, uint position) {
    const uint head = PAIR_HEAD(pair), p = pair - head * HEAD_PAIRS;
    const uvec2 place = rope_pair(p);
    if (head < heads + kv_heads && p < ROTATED_PAIRS) value = rope_turn(value, angle);
    if (head < heads) {
        y.data[head * HEAD_PAIRS * 2u + place.x] = value.x;
        y.data[head * HEAD_PAIRS * 2u + place.y] = value.y;
        return;
    }
    const bool is_k = head < heads + kv_heads;
    const uvec2 target = ((head - heads - (is_k ? 0u : kv_heads)) * context + position) * HEAD_PAIRS * 2u + place;
    if (is_k) {
        k_cache.data[target.x] = float16_t(value.x);
        k_cache.data[target.y] = float16_t(value.y);
    } else {
        v_cache.data[target.x] = float16_t(value.x);
        v_cache.data[target.y] = float16_t(value.y);
    }
}
