// Weights for kernels where eight lanes share a block of one row, four columns each: on a software device everything
// but the last shift is then scalar work, which costs an eighth of work on lanes.

#if LOW_BITS == 4 && HIGH_BITS == 0 && !defined(CODEBOOK)
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
#elif LOW_BITS == 4
    uvec4 q = (QUANT(base, at) >> (lane * 4u)) & 15u;
#else
    const uvec2 pairs = QUANT(base, at) >> (lane * 4u);
    uvec4 q = uvec4(pairs.x, pairs.x >> 2, pairs.y, pairs.y >> 2) & 3u;
#endif
#if HIGH_BITS == 1
    const uint bits = load_high(base, block).x >> (lane * 4u) << LOW_BITS;
    q |= uvec4(bits, bits >> 1, bits >> 2, bits >> 3) & (1u << LOW_BITS);
#elif HIGH_BITS == 2
    const uvec2 bits = load_high(base, block) >> (lane * 4u) << LOW_BITS;
    q |= uvec4(bits.x, bits.x >> 2, bits.y, bits.y >> 2) & (3u << LOW_BITS);
#endif
#ifdef CODEBOOK
    return code_values(q);
#else
    return vec4(ivec4(q));
#endif
#endif
}

// (d, m) of a lane's columns of a block
vec2 lane_scale(RowBase base, uint block, uint lane) {
#ifdef HALF_SCALES
    const vec2 low = block_scale(base, block, 0u), high = block_scale(base, block, 1u);
    return (lane & 1u) == 0u ? low : high;
#else
    return block_scale(base, block, 0u);
#endif
}
