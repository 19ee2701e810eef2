// Weights as engine/weights/repack.py lays them out. A weight is d q + m, with one d and m for a block of 32 columns
// (HALF_SCALES: for each half of one). WEIGHT_TYPE names the quantisation, CPU_DEVICE selects repack's "cpu" layout.
//
// Before this include a kernel defines QUANT(base, i) = the i-th unit (QUANT_ELEMENT), QUANT_WORD(base, i, j) = its
// j-th word, and SCALE(base, i) = the i-th word of the scales plane, where `base` is the RowBase of the row at hand.
// Where it has the plane in elements of SCALE_ELEMENT, SCALE_VECTOR(base, i) = the i-th of these.
// Afterwards: row_base, load_weights (any four columns), and what layout_cpu.glsl or layout_gpu.glsl says.
#extension GL_EXT_control_flow_attributes : require

#include "weight_type.glsl"

// Always 0. Rows on GPUs (row_products.glsl) have it seem to come from the sums of the rows before: compilers unpack what it
// is mixed into, and wait for that to be loaded, only behind these.
#ifdef CPU_DEVICE
const uint after_sums = 0u;
#else
uint after_sums = 0u;
#endif

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

// (unit, place in it) of a quad of a row
uvec2 quad_place(RowBase base, uint quad) { return uvec2(quad / UNIT_QUADS, quad % UNIT_QUADS); }

// ---- scales ----

// the words that hold a block's scales, as scale_of takes them
uvec4 load_scales(RowBase base, uint block) {
    uvec4 words = uvec4(0u);
#ifndef PLAIN
    const uint at = first_index(base, block);
#if WEIGHT_TYPE == WEIGHT_Q2_K || WEIGHT_TYPE == WEIGHT_Q6_K
    words.xy = uvec2(SCALE(base, at + (block % 8u) / 2u), SCALE(base, second_index(base, block)));
#elif WEIGHT_TYPE == WEIGHT_Q3_K || WEIGHT_TYPE == WEIGHT_Q4_K || WEIGHT_TYPE == WEIGHT_Q5_K
#ifdef SCALE_VECTOR
    words = SCALE_VECTOR(base, at / 4u);
#else
    words = uvec4(SCALE(base, at), SCALE(base, at + 1u), SCALE(base, at + 2u), SCALE(base, at + 3u));
#endif
#elif WEIGHT_TYPE == WEIGHT_IQ4_XS
#ifdef SCALE_VECTOR
    words.xy = SCALE_VECTOR(base, at / 2u);
#else
    words.xy = uvec2(SCALE(base, at), SCALE(base, at + 1u));
#endif
#else
    words.x = SCALE(base, at);
#endif
#endif
    return words;
}

// ggml's get_scale_min_k4: 6 bits each of scale and minimum in 12 bytes, the upper four split over two places.
// `words` holds d and dmin (float16), then the 12 bytes; the result is (d, m) of 32-block i.
vec2 k4_scale(uvec4 words, uint i) {
    const uvec3 bytes = words.yzw >> ((i & 3u) * 8u);
    const uint scale = (i & 4u) == 0u ? bytes.x & 63u : (bytes.z & 15u) | ((bytes.x >> 2) & 48u);
    const uint minimum = (i & 4u) == 0u ? bytes.y & 63u : ((bytes.z >> 4) & 15u) | ((bytes.y >> 2) & 48u);
    return unpackHalf2x16(words.x ^ after_sums) * vec2(float(scale), -float(minimum));
}

// (d, m) of a block from its words; half_block (0 or 1) matters with HALF_SCALES only
vec2 scale_of(uvec4 words, uint item, uint block, uint half_block) {
#if defined(PLAIN)
    return vec2(1.0, 0.0);
#elif WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q5_1
    return unpackHalf2x16(words.x ^ after_sums);
#elif WEIGHT_TYPE == WEIGHT_Q4_K || WEIGHT_TYPE == WEIGHT_Q5_K
    return k4_scale(words, block % 8u);
#elif WEIGHT_TYPE == WEIGHT_Q2_K
    const uint both = words.x >> (block % 2u * 16u + half_block * 8u);
    return unpackHalf2x16(words.y ^ after_sums) * vec2(float(both & 15u), -float((both >> 4) & 15u));
#else
#if WEIGHT_TYPE == WEIGHT_Q6_K
    const int sub = int(words.x << ((1u - block % 2u) * 16u + (1u - half_block) * 8u)) >> 24;
    const float d = unpackHalf2x16(words.y >> (item % 2u * 16u)).x * float(sub);
#elif WEIGHT_TYPE == WEIGHT_Q3_K
    const uint i = block % 8u * 2u + half_block;
    const uint low = ((i < 8u ? words.y : words.z) >> (i % 8u * 4u)) & 15u, high = (words.w >> (i * 2u)) & 3u;
    const float d = unpackHalf2x16(words.x ^ after_sums).x * float(int(low | (high << 4)) - 32);
#elif WEIGHT_TYPE == WEIGHT_IQ4_XS
    const uint i = block % 8u;
    const uint low = (words.y >> (i * 4u)) & 15u, high = (words.x >> (16u + i * 2u)) & 3u;
    const float d = unpackHalf2x16(words.x ^ after_sums).x * float(int(low | (high << 4)) - 32);
#elif WEIGHT_TYPE == WEIGHT_MXFP4
    // half of 2^(e - 127), since the codebook has the values doubled
    const uint e = (words.x >> (item % 4u * 8u)) & 255u;
    const float d = uintBitsToFloat(e < 2u ? 0x00200000u << e : (e - 1u) << 23);
#else
    const float d = unpackHalf2x16(words.x >> (item % 2u * 16u)).x;
#endif
    return vec2(d, -float(OFFSET) * d);
#endif
}

vec2 block_scale(RowBase base, uint block, uint half_block) {
    return scale_of(load_scales(base, block), SCALE_ITEM(base, block), block, half_block);
}

// ---- quants ----

// the bits above those of a block's unit
uvec2 load_high(RowBase base, uint block) {
#if HIGH_BITS == 1
    return uvec2(SCALE(base, high_index(base, block)), 0u);
#elif HIGH_BITS == 2
    const uint at = high_index(base, block);
    return uvec2(SCALE(base, at), SCALE(base, at + 1u));
#else
    return uvec2(0u);
#endif
}

vec4 byte_floats(uint word) {
    return vec4(float(word & 255u), float((word >> 8) & 255u), float((word >> 16) & 255u), float(word >> 24));
}

#if LOW_BITS <= 4
// where the two bits of a quad are in the bytes of word (p / 2) % 2
#define TWO_BIT_PLACE(p) (((p) >> 2) * 4u + ((p) & 1u) * 2u)

// bit `from` of each byte to bit `to`, and what is beside it somewhere else
uint move_bit(uint word, uint from, uint to) {
    return from < to ? word << (((to - from) & 31u) + after_sums) : word >> (((from - to) & 31u) + after_sums);
}

// the q of the quad at place p of a unit, as bytes
uint unit_bytes(QUANT_ELEMENT unit, uvec2 high, uint p) {
#if LOW_BITS == 4
    const uint low = p < 4u ? unit[p & 3u] & (0x0f0f0f0fu ^ after_sums) : (unit[p & 3u] >> (4u + after_sums)) & 0x0f0f0f0fu;
#else
    const uint low = (unit[(p >> 1) & 1u] >> (TWO_BIT_PLACE(p) + after_sums)) & 0x03030303u;
#endif
#if HIGH_BITS == 1
    return low | (move_bit(high.x, p, LOW_BITS) & (0x01010101u << LOW_BITS));
#elif HIGH_BITS == 2
    return low | (move_bit((p & 2u) == 0u ? high.x : high.y, TWO_BIT_PLACE(p), LOW_BITS) & (0x03030303u << LOW_BITS));
#else
    return low;
#endif
}
#endif

#ifdef CODEBOOK
int code_value(uint q) {
    const uvec4 table = CODEBOOK;
    const uint word = q < 8u ? (q < 4u ? table.x : table.y) : (q < 12u ? table.z : table.w);
    return int(word << (24u - (q & 3u) * 8u)) >> 24;
}
vec4 code_values(uvec4 q) {
    return vec4(ivec4(code_value(q.x), code_value(q.y), code_value(q.z), code_value(q.w)));
}
#endif

// the q of the quad at place p of a unit, or its value where there is a codebook
vec4 unit_quad(QUANT_ELEMENT unit, uvec2 high, uint p) {
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
#elif defined(CODEBOOK)
    return code_values((uvec4(unit[p & 3u]) >> (uvec4(0u, 8u, 16u, 24u) + (p >> 2) * 4u)) & 15u);
#elif defined(CPU_DEVICE) && LOW_BITS == 4 && HIGH_BITS == 0
    // no byte-to-float conversion there: a shift and a mask an element is the shortest
    // its highest bit is stored flipped: see lanes_cpu.glsl
    return vec4(ivec4((uvec4(unit[p & 3u] ^ 0x80000000u) >> (uvec4(0u, 8u, 16u, 24u) + (p >> 2) * 4u)) & 15u));
#else
    return byte_floats(unit_bytes(unit, high, p));
#endif
}

// the weights of a quad from its q and its block's scale
vec4 quad_weights(vec4 q, vec2 scale) {
#if defined(PLAIN)
    return q;
#elif defined(MINIMUM) || OFFSET != 0
    return fma(vec4(scale.x), q, vec4(scale.y));
#else
    return scale.x * q;
#endif
}

// columns 4 quad to 4 quad + 3 of a row; quad may vary from lane to lane
vec4 load_weights(RowBase base, uint quad) {
    const uvec2 place = quad_place(base, quad);
    const vec4 q = unit_quad(QUANT(base, unit_index(base, place.x)), load_high(base, quad >> 3), place.y);
    return quad_weights(q, block_scale(base, quad >> 3, (quad >> 2) & 1u));
}

#ifdef CPU_DEVICE
#include "lanes_cpu.glsl"
#endif
