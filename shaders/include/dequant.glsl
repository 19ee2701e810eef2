// Weights as engine/weights/repack.py lays them out. A weight is d q + m, with one d and m for a block of 32 columns
// (Q6_K: a d for each half of one). WEIGHT_TYPE names the quantisation, CPU_DEVICE selects repack's "cpu" layout.
//
// Before this include a kernel defines QUANT(base, i) = the i-th 16-byte unit as uvec4, QUANT_WORD(base, i, j) = its
// j-th word, and SCALE(base, i) = the i-th word of the scales plane, where `base` is the RowBase of the row at hand.
// Afterwards: row_base, load_weights (any four columns), and what layout_cpu.glsl or layout_gpu.glsl says.
#extension GL_EXT_control_flow_attributes : require

#include "weight_type.glsl"

// Where a row's data begins. `r` is its place among the eight rows of its group ("cpu" layout), `side` is for
// kernels that read two tensors.
struct RowBase {
    uint quants;
    uint scales;
    uint blocks;
    uint r;
    uint side;
};

#ifdef CPU_DEVICE
#include "layout_cpu.glsl"
#else
#include "layout_gpu.glsl"
#endif

// ---- scales ----

// ggml's get_scale_min_k4: 6 bits each of scale and minimum in 12 bytes, the upper four split over two places.
// `words` holds d and dmin (float16), then the 12 bytes; the result is (d, m) of 32-block i.
vec2 k4_scale(uvec4 words, uint i) {
    const uvec3 bytes = words.yzw >> ((i & 3u) * 8u);
    const uint scale = (i & 4u) == 0u ? bytes.x & 63u : (bytes.z & 15u) | ((bytes.x >> 2) & 48u);
    const uint minimum = (i & 4u) == 0u ? bytes.y & 63u : ((bytes.z >> 4) & 15u) | ((bytes.y >> 2) & 48u);
    return unpackHalf2x16(words.x) * vec2(float(scale), -float(minimum));
}

#define Q4_0_OFFSET 8.0
#define Q5_0_OFFSET 16.0
#define Q6_K_OFFSET 32.0

// (d, m) of a block; half_block (0 or 1) matters to Q6_K only
vec2 block_scale(RowBase base, uint block, uint half_block) {
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q8_0
    const float d = unpackHalf2x16(SCALE(base, d_index(base, block)) >> HALF_SHIFT(base, block)).x;
#if WEIGHT_TYPE == WEIGHT_Q4_0
    return vec2(d, -Q4_0_OFFSET * d);
#elif WEIGHT_TYPE == WEIGHT_Q5_0
    return vec2(d, -Q5_0_OFFSET * d);
#else
    return vec2(d, 0.0);
#endif
#elif WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q5_1
    return unpackHalf2x16(SCALE(base, dm_index(base, block)));
#elif WEIGHT_TYPE == WEIGHT_Q4_K
    const uint at = super_index(base, block);
    return k4_scale(uvec4(SCALE(base, at), SCALE(base, at + 1u), SCALE(base, at + 2u), SCALE(base, at + 3u)), block & 7u);
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const int pair = int(SCALE(base, sub_index(base, block)) >> ((block & 1u) * 16u));
    const int sub = half_block == 0u ? bitfieldExtract(pair, 0, 8) : bitfieldExtract(pair, 8, 8);
    const float d = float(sub) * unpackHalf2x16(SCALE(base, d_index(base, block)) >> HALF_SHIFT(base, block)).x;
    return vec2(d, -Q6_K_OFFSET * d);
#else
    return vec2(1.0, 0.0);
#endif
}

// ---- quants ----

// the bits above the nibbles: the fifth (Q5), or bits 4 and 5 (Q6_K)
uvec2 load_high(RowBase base, uint unit) {
#if WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1
    return uvec2(SCALE(base, high_index(base, unit)), 0u);
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const uint at = high_index(base, unit);
    return uvec2(SCALE(base, at), SCALE(base, at + 1u));
#else
    return uvec2(0u);
#endif
}

vec4 byte_floats(uint word) {
    return vec4(float(word & 255u), float((word >> 8) & 255u), float((word >> 16) & 255u), float(word >> 24));
}

#if WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1 || WEIGHT_TYPE == WEIGHT_Q6_K
// the q of the quad at place p of a unit, as bytes: nibbles are in the low halves of word p, then in the high halves of
// p - 4
uint unit_bytes(uvec4 unit, uvec2 high, uint p) {
    const uint nibbles = (unit[p & 3u] >> ((p >> 2) * 4u)) & 0x0f0f0f0fu;
#if WEIGHT_TYPE == WEIGHT_Q6_K
    // bits 4 and 5 of column j of the quad at 16 (p & 1) + 4 j of word (p & 3) / 2, two further in the upper half
    const uint bits = ((p & 2u) == 0u ? high.x : high.y) >> ((p & 1u) * 16u + (p >> 2) * 2u);
    return nibbles | ((bits << 4) & 0x30u) | ((bits << 8) & 0x3000u) | ((bits << 12) & 0x300000u) | ((bits << 16) & 0x30000000u);
#else
    // column j of the quad has its fifth bit at 8 (p & 3) + 2 j, one further in the upper half
    const uint bits = high.x >> ((p & 3u) * 8u + (p >> 2));
    return nibbles | ((bits << 4) & 0x10u) | ((bits << 10) & 0x1000u) | ((bits << 16) & 0x100000u) | ((bits << 22) & 0x10000000u);
#endif
}
#endif

// the q of the quad at place p of a unit
vec4 unit_quad(uvec4 unit, uvec2 high, uint p) {
#if WEIGHT_TYPE == WEIGHT_F32
    return uintBitsToFloat(unit);
#elif WEIGHT_TYPE == WEIGHT_F16
    const uvec2 pair = (p & 1u) == 0u ? unit.xy : unit.zw;
    return vec4(unpackHalf2x16(pair.x), unpackHalf2x16(pair.y));
#elif WEIGHT_TYPE == WEIGHT_BF16
    const uvec2 pair = (p & 1u) == 0u ? unit.xy : unit.zw;
    return uintBitsToFloat(uvec4(pair.x << 16, pair.x & 0xffff0000u, pair.y << 16, pair.y & 0xffff0000u));
#elif WEIGHT_TYPE == WEIGHT_Q8_0
    const int word = int(unit[p & 3u]);
    return vec4(ivec4(bitfieldExtract(word, 0, 8), bitfieldExtract(word, 8, 8), bitfieldExtract(word, 16, 8), word >> 24));
#elif WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1 || WEIGHT_TYPE == WEIGHT_Q6_K
    return byte_floats(unit_bytes(unit, high, p));
#else
    const uint word = unit[p & 3u];
    const uint shift = (p >> 2) * 4u;
#if defined(CPU_DEVICE)
    // no byte-to-float conversion there: a shift and a mask an element is the shortest
    // its highest bit is stored flipped: see lanes_cpu.glsl
    return vec4(ivec4((uvec4(word ^ 0x80000000u) >> (uvec4(0u, 8u, 16u, 24u) + shift)) & 15u));
#else
    return byte_floats((word >> shift) & 0x0f0f0f0fu);
#endif
#endif
}

// the weights of a quad from its q and its block's scale
vec4 quad_weights(vec4 q, vec2 scale) {
#if defined(PLAIN)
    return q;
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    return scale.x * (q - Q6_K_OFFSET);
#elif defined(NO_MIN)
    return scale.x * q;
#else
    return fma(vec4(scale.x), q, vec4(scale.y));
#endif
}

// columns 4 quad to 4 quad + 3 of a row; quad may vary from lane to lane
vec4 load_weights(RowBase base, uint quad) {
    const uvec2 place = quad_place(base, quad);
    const vec4 q = unit_quad(QUANT(base, unit_index(base, place.x)), load_high(base, place.x), place.y);
    return quad_weights(q, block_scale(base, quad >> 3, (quad >> 2) & 1u));
}

#ifdef CPU_DEVICE
#include "lanes_cpu.glsl"
#endif
