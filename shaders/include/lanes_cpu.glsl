// Weights for kernels where eight lanes share a block of one row, four columns each: on a software device everything
// but the last shift is then scalar work, which costs an eighth of work on lanes.

#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q4_K
// A nibble is not shifted down but masked where it is, which makes it 16^lane times too large; x makes up for that,
// exactly. Lane 7's is then the sign as well: repack stores it flipped, so that what is read there is q - 8.
#define IN_PLACE 1
#else
#define IN_PLACE 0
#endif

// the column of a block that a lane (0-7) takes in step s (0-3)
uint lane_column(uint lane, uint s) {
#if WEIGHT_TYPE == WEIGHT_F32 || WEIGHT_TYPE == WEIGHT_Q8_0
    return s * 8u + lane;
#elif WEIGHT_TYPE == WEIGHT_F16 || WEIGHT_TYPE == WEIGHT_BF16
    return (s >> 1) * 16u + lane * 2u + (s & 1u);
#else
    return (lane & 1u) * 16u + s * 4u + (lane >> 1);
#endif
}

#if WEIGHT_TYPE == WEIGHT_Q8_0
float lane_byte(uint low, uint high, uint lane) {
    return float(int((lane < 4u ? low : high) << (24u - (lane & 3u) * 8u)) >> 24);
}
#endif

// a lane's four q of a block; with IN_PLACE times 16^lane, and less 8 in lane 7
vec4 lane_quants(RowBase base, uint block, uint lane) {
    const uint at = unit_index(base, block * UNITS);
#if WEIGHT_TYPE == WEIGHT_F32
    const uint unit = at + (lane >> 2), word = lane & 3u;
    return uintBitsToFloat(uvec4(QUANT_WORD(base, unit, word), QUANT_WORD(base, unit + 2u, word),
        QUANT_WORD(base, unit + 4u, word), QUANT_WORD(base, unit + 6u, word)));
#elif WEIGHT_TYPE == WEIGHT_F16 || WEIGHT_TYPE == WEIGHT_BF16
    const uint unit = at + (lane >> 2), word = lane & 3u;
    const uint low = QUANT_WORD(base, unit, word), high = QUANT_WORD(base, unit + 2u, word);
#if WEIGHT_TYPE == WEIGHT_F16
    return vec4(unpackHalf2x16(low), unpackHalf2x16(high));
#else
    return uintBitsToFloat(uvec4(low << 16, low & 0xffff0000u, high << 16, high & 0xffff0000u));
#endif
#elif WEIGHT_TYPE == WEIGHT_Q8_0
    const uvec4 a = QUANT(base, at), b = QUANT(base, at + 1u);
    return vec4(lane_byte(a.x, a.y, lane), lane_byte(a.z, a.w, lane), lane_byte(b.x, b.y, lane), lane_byte(b.z, b.w, lane));
#else
#if IN_PLACE
    uvec4 q = QUANT(base, at) & (15u << (lane * 4u));
#else
    uvec4 q = (QUANT(base, at) >> (lane * 4u)) & 15u;
#endif
#if WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1
    const uint bits = load_high(base, block).x >> lane;
    q |= uvec4(bits << 4, bits >> 4, bits >> 12, bits >> 20) & 16u;
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const uvec2 bits = load_high(base, block) >> (lane * 2u);
    q |= uvec4(bits.x << 4, bits.x >> 12, bits.y << 4, bits.y >> 12) & 48u;
#endif
    return vec4(ivec4(q));
#endif
}

// (d, m) of a lane's columns of a block
vec2 lane_scale(RowBase base, uint block, uint lane) {
#if WEIGHT_TYPE == WEIGHT_Q6_K
    const vec2 low = block_scale(base, block, 0u), high = block_scale(base, block, 1u);
    return (lane & 1u) == 0u ? low : high;
#else
    return block_scale(base, block, 0u);
#endif
}
