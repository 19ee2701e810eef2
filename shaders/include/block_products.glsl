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
    QUANT_ELEMENT u0;
#if UNITS > 1
    QUANT_ELEMENT u1;
#endif
#if UNITS > 2
    QUANT_ELEMENT u2, u3;
#endif
#if UNITS > 4
    QUANT_ELEMENT u4, u5, u6, u7;
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
    p.scales = load_scales(base, block);
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

#ifdef CODEBOOK
// The codebook in shared memory, a copy a bank, so that lanes looking up different codes do not wait for each other.
#define BANKS 32u
shared uint code_bytes[16u * BANKS];
void fill_code_bytes() {
    for (uint i = gl_LocalInvocationIndex; i < 16u * BANKS; i += GROUP) code_bytes[i] = uint(code_value(i / BANKS)) & 255u;
}
uint code_quad(uint word, uint shift) {
    const uint bank = gl_LocalInvocationIndex % BANKS;
    return code_bytes[((word >> (shift + after_sums)) & 15u) * BANKS + bank]
        | (code_bytes[((word >> (8u + shift + after_sums)) & 15u) * BANKS + bank] << 8)
        | (code_bytes[((word >> (16u + shift + after_sums)) & 15u) * BANKS + bank] << 16)
        | (code_bytes[((word >> (24u + shift + after_sums)) & 15u) * BANKS + bank] << 24);
}
#endif

// the q of the quads in the low and in the high half of a block; `OFFSET` is yet to be subtracted
#if defined(CODEBOOK)
#define LOW_QUAD(p, word, i) code_quad(p.u0.word, 0u)
#define HIGH_QUAD(p, word, i) code_quad(p.u0.word, 4u)
#elif WEIGHT_TYPE == WEIGHT_Q8_0
#define LOW_QUAD(p, word, i) p.u0.word
#define HIGH_QUAD(p, word, i) p.u1.word
#else
#define LOW_QUAD(p, word, i) unit_bytes(p.u0, p.high, i)
#define HIGH_QUAD(p, word, i) unit_bytes(p.u0, p.high, i + 4u)
#endif
#define LOW_DOTS(from, p) \
    add_dots(add_dots(add_dots(add_dots(from, LOW_QUAD(p, x, 0u), x0), LOW_QUAD(p, y, 1u), x1), LOW_QUAD(p, z, 2u), x2), LOW_QUAD(p, w, 3u), x3)
#define HIGH_DOTS(from, p) \
    add_dots(add_dots(add_dots(add_dots(from, HIGH_QUAD(p, x, 0u), x4), HIGH_QUAD(p, y, 1u), x5), HIGH_QUAD(p, z, 2u), x6), HIGH_QUAD(p, w, 3u), x7)

// Where there is one scale a block, its dots run on from half to half.
#ifdef HALF_SCALES
#define BLOCK_SUM(sum, p) add_block(sum, p, block ^ after_sums, LOW_DOTS(low_start, p), HIGH_DOTS(high_start, p), x_scale, totals)
#else
#define BLOCK_SUM(sum, p) add_block(sum, p, block ^ after_sums, HIGH_DOTS(LOW_DOTS(low_start, p), p), ivec3(0), x_scale, totals)
#endif

// sum plus a block's product from its dots; `totals` are the sums of its x, by halves with HALF_SCALES
float add_block(float sum, Packed p, uint block, ivec3 low, ivec3 high, float x_scale, vec2 totals) {
    const uint item = SCALE_ITEM(base, block);
    const vec2 scale = scale_of(p.scales, item, block, 0u);
    sum = fma(scale.x * x_scale, planes_value(low), sum);
#ifdef MINIMUM
    sum = fma(scale.y, totals.x, sum);
#endif
#ifdef HALF_SCALES
    const vec2 high_scale = scale_of(p.scales, item, block, 1u);
    sum = fma(high_scale.x * x_scale, planes_value(high), sum);
#ifdef MINIMUM
    sum = fma(high_scale.y, totals.y, sum);
#endif
#endif
    return sum;
}
#endif
