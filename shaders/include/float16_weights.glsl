// Quads of weights as float16, times WEIGHT_FACTOR, for tiles of a matrix: dequant.glsl's values, each rounded once, without
// the conversions that GPUs are slow at. q becomes a float by putting its bits below a power of two.

// the q of quad i of a half block (0 to 3), as bytes; `side` is which half
#if LOW_BITS <= 4
uint half_bytes(QUANT_ELEMENT unit, uvec2 high, uint side, uint i) {
#if LOW_BITS == 4
    const uint low = (unit[i] >> (side * 4u)) & 0x0f0f0f0fu;
#else
    const uint low = (unit[i / 2u] >> (side * 4u + i % 2u * 2u)) & 0x03030303u;
#endif
#if HIGH_BITS == 1
    return low | (move_bit(high.x >> (side * 4u), i, LOW_BITS) & (0x01010101u << LOW_BITS));
#elif HIGH_BITS == 2
    return low | (move_bit((i < 2u ? high.x : high.y) >> (side * 4u), i % 2u * 2u, LOW_BITS) & (0x03030303u << LOW_BITS));
#else
    return low;
#endif
}
#endif

#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q8_0
// d is a float16 itself, and q too: so is their product, rounded once
#if LOW_BITS == 8
#define ZERO (1024.0 + 128.0)
#define FLIPPED 0x80808080u
#else
#define ZERO (1024.0 + float(OFFSET))
#define FLIPPED 0u
#endif
#define PAIR_OF(bytes) (unpackFloat2x16(((bytes) & 0x00ff00ffu) | 0x64006400u) - float16_t(ZERO))

uvec2 scaled_pairs(uint bytes, vec2 scale) {
    const f16vec2 d = f16vec2(float16_t(scale.x));
    const uint q = bytes ^ FLIPPED;
    precise const f16vec2 even = PAIR_OF(q) * d, odd = PAIR_OF(q >> 8) * d;
    return uvec2(packFloat2x16(even), packFloat2x16(odd));
}
#define QUAD_OF_BYTES(bytes, scale) scaled_pairs(bytes, scale)
#elif LOW_BITS <= 4 && !defined(CODEBOOK)
#define BITS (LOW_BITS + HIGH_BITS)
#define POWER float(1u << BITS)
#define POWER_BITS ((127u + BITS) << 23)
// a power of two and byte b of a word, as a float
#define ABOVE(word, b) uintBitsToFloat(POWER_BITS | (move_bit(word, 8u * (b), 23u - BITS) & (((1u << BITS) - 1u) << (23u - BITS))))

uvec2 scaled_quad(uint bytes, vec2 scale) {
    const vec4 q = vec4(ABOVE(bytes, 0u), ABOVE(bytes, 1u), ABOVE(bytes, 2u), ABOVE(bytes, 3u));
    return float16_quad(fma(vec4(scale.x), q, vec4(fma(scale.x, -POWER, scale.y))));
}
#define QUAD_OF_BYTES(bytes, scale) scaled_quad(bytes, scale)
#endif

// quad i of a half block from its units; `scale` is the half's, times WEIGHT_FACTOR
#if LOW_BITS == 8
#define HALF_QUAD(units, high, scale, side, i) QUAD_OF_BYTES(units[0][i], scale)
#elif defined(QUAD_OF_BYTES)
#define HALF_QUAD(units, high, scale, side, i) QUAD_OF_BYTES(half_bytes(units[0], high, side, i), scale)
#elif defined(CODEBOOK)
#define HALF_QUAD(units, high, scale, side, i) \
    float16_quad(quad_weights(code_values((uvec4(units[0][i]) >> (uvec4(0u, 8u, 16u, 24u) + (side) * 4u)) & 15u), scale))
#else
#define HALF_QUAD(units, high, scale, side, i) \
    float16_quad(unit_quad(units[(i) / UNIT_QUADS], high, (i) % UNIT_QUADS) * WEIGHT_FACTOR)
#endif
