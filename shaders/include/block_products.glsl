// A block of 32 columns of a row in the "gpu" layout, and its product with the block of x that an invocation holds.
//
// Quantised weights meet x in integers: a block of x is rounded to 23 bits with one power of two, which errs by no more
// than float32 sums do, and split into three planes of signed bytes, so that three packed dot products stand for four
// multiplications, additions and the conversions that GPUs are slow at. The block's sum is exact.
#ifndef NO_INTEGER_DOT
#extension GL_EXT_integer_dot_product : require
#endif

// A block of a row as loaded.
struct Packed {
    uvec4 u0;
#if UNITS > 1
    uvec4 u1;
#endif
#if UNITS > 2
    uvec4 u2, u3;
#endif
#if UNITS > 4
    uvec4 u4, u5, u6, u7;
#endif
    uvec2 high;
    uvec4 scales;
};

#define LOAD_UNIT(i) QUANT(base, unit_index(base, block * UNITS + i))

Packed load_packed(RowBase base, uint block) {
    Packed p;
    p.u0 = LOAD_UNIT(0u);
#if UNITS > 1
    p.u1 = LOAD_UNIT(1u);
#endif
#if UNITS > 2
    p.u2 = LOAD_UNIT(2u);
    p.u3 = LOAD_UNIT(3u);
#endif
#if UNITS > 4
    p.u4 = LOAD_UNIT(4u);
    p.u5 = LOAD_UNIT(5u);
    p.u6 = LOAD_UNIT(6u);
    p.u7 = LOAD_UNIT(7u);
#endif
    p.high = load_high(base, block);
    p.scales = uvec4(0u);
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q8_0
    p.scales.x = SCALE(base, d_index(base, block));
#elif WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q5_1
    p.scales.x = SCALE(base, dm_index(base, block));
#elif WEIGHT_TYPE == WEIGHT_Q4_K
    p.scales = SCALE_QUAD(base, super_index(base, block) / 4u);
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    p.scales.xy = uvec2(SCALE(base, sub_index(base, block)), SCALE(base, d_index(base, block)));
#endif
    return p;
}

float add_quad(float sum, vec4 q, vec4 v) { return fma(q.w, v.w, fma(q.z, v.z, fma(q.y, v.y, fma(q.x, v.x, sum)))); }

#ifdef PLAIN
#define PLAIN_QUAD(u, i) unit_quad(u, uvec2(0u), i)
#if UNITS == 8
#define LOW_SUM(p) \
    add_quad(add_quad(add_quad(add_quad(0.0, PLAIN_QUAD(p.u0, 0u), x0), PLAIN_QUAD(p.u1, 0u), x1), PLAIN_QUAD(p.u2, 0u), x2), PLAIN_QUAD(p.u3, 0u), x3)
#define HIGH_SUM(p) \
    add_quad(add_quad(add_quad(add_quad(0.0, PLAIN_QUAD(p.u4, 0u), x4), PLAIN_QUAD(p.u5, 0u), x5), PLAIN_QUAD(p.u6, 0u), x6), PLAIN_QUAD(p.u7, 0u), x7)
#else
#define LOW_SUM(p) \
    add_quad(add_quad(add_quad(add_quad(0.0, PLAIN_QUAD(p.u0, 0u), x0), PLAIN_QUAD(p.u0, 1u), x1), PLAIN_QUAD(p.u1, 0u), x2), PLAIN_QUAD(p.u1, 1u), x3)
#define HIGH_SUM(p) \
    add_quad(add_quad(add_quad(add_quad(0.0, PLAIN_QUAD(p.u2, 0u), x4), PLAIN_QUAD(p.u2, 1u), x5), PLAIN_QUAD(p.u3, 0u), x6), PLAIN_QUAD(p.u3, 1u), x7)
#endif
#define BLOCK_SUM(sum, p) (sum + (LOW_SUM(p) + HIGH_SUM(p)))
#else

#ifdef NO_INTEGER_DOT
int dot4(uint a, int b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8) sum += bitfieldExtract(int(a), i, 8) * bitfieldExtract(b, i, 8);
    return sum;
}
#else
int dot4(uint a, int b) { return dotPacked4x8EXT(int(a), b); }
#endif

// sums of a quad's q (four signed bytes) times each plane of its x
ivec3 add_dots(ivec3 sums, uint q, ivec3 planes) {
    return ivec3(sums.x + dot4(q, planes.x), sums.y + dot4(q, planes.y), sums.z + dot4(q, planes.z));
}

float planes_value(ivec3 sums) { return fma(float(sums.z), 65536.0, float(sums.y * 256 + sums.x)); }

// the q of the quads in the low and in the high half of a block; `OFFSET` is yet to be subtracted
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q4_K
#define LOW_QUAD(p, word, i) (p.u0.word & 0x0f0f0f0fu)
#define HIGH_QUAD(p, word, i) ((p.u0.word >> 4) & 0x0f0f0f0fu)
#elif WEIGHT_TYPE == WEIGHT_Q8_0
#define LOW_QUAD(p, word, i) p.u0.word
#define HIGH_QUAD(p, word, i) p.u1.word
#else
#define LOW_QUAD(p, word, i) unit_bytes(p.u0, p.high, i)
#define HIGH_QUAD(p, word, i) unit_bytes(p.u0, p.high, i + 4u)
#endif
#if WEIGHT_TYPE == WEIGHT_Q4_0
#define OFFSET 8
#elif WEIGHT_TYPE == WEIGHT_Q5_0
#define OFFSET 16
#elif WEIGHT_TYPE == WEIGHT_Q6_K
#define OFFSET 32
#else
#define OFFSET 0
#endif
#define LOW_DOTS(from, p) \
    add_dots(add_dots(add_dots(add_dots(from, LOW_QUAD(p, x, 0u), x0), LOW_QUAD(p, y, 1u), x1), LOW_QUAD(p, z, 2u), x2), LOW_QUAD(p, w, 3u), x3)
#define HIGH_DOTS(from, p) \
    add_dots(add_dots(add_dots(add_dots(from, HIGH_QUAD(p, x, 0u), x4), HIGH_QUAD(p, y, 1u), x5), HIGH_QUAD(p, z, 2u), x6), HIGH_QUAD(p, w, 3u), x7)

// Where there is one scale a block, its dots run on from half to half.
#if WEIGHT_TYPE == WEIGHT_Q6_K
#define BLOCK_SUM(sum, p) add_block(sum, p, block, LOW_DOTS(low_start, p), HIGH_DOTS(high_start, p), x_scale, total)
#else
#define BLOCK_SUM(sum, p) add_block(sum, p, block, HIGH_DOTS(LOW_DOTS(low_start, p), p), ivec3(0), x_scale, total)
#endif

// sum plus a block's product from its dots; `total` is the sum of its x
float add_block(float sum, Packed p, uint block, ivec3 low, ivec3 high, float x_scale, float total) {
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q8_0
    return fma(unpackHalf2x16(p.scales.x >> (block & 1u) * 16u).x * x_scale, planes_value(low), sum);
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const int two = int(p.scales.x >> (block & 1u) * 16u);
    const float d = unpackHalf2x16(p.scales.y >> ((block >> 3) & 1u) * 16u).x * x_scale;
    sum = fma(d * float(bitfieldExtract(two, 0, 8)), planes_value(low), sum);
    return fma(d * float(bitfieldExtract(two, 8, 8)), planes_value(high), sum);
#else
#if WEIGHT_TYPE == WEIGHT_Q4_K
    const vec2 dm = k4_scale(p.scales, block & 7u);
#else
    const vec2 dm = unpackHalf2x16(p.scales.x);
#endif
    return fma(dm.y, total, fma(dm.x * x_scale, planes_value(low), sum));
#endif
}
#endif
