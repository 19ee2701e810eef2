// Rows on GPUs: LANES invocations share a row of COLS columns, invocation t taking blocks (of 32 columns) t, t + LANES,
// ... in order. The blocks' sums meet in a shuffle-xor tree in each subgroup, then subgroup by subgroup, so a row's
// arithmetic depends on LANES and COLS alone, never on how many rows a workgroup takes.
//
// A workgroup takes a tile of ROWS rows after another, `gl_NumWorkGroups.x` tiles on. Where LANES covers COLS, its x
// stays in registers, and the next tile is loaded before the products of this one.
//
// All is unrolled by hand: no array is indexed by a variable or passed to a function.
//
// Includers define SUMS, the rows (of all tensors) in a tile: a power of two up to 16 and to SUBGROUP_SIZE. They have x
// (vec4), norm (vec4; the RMS norm's weights, with NORM), and the push constants inverse_width and eps.
//
// Quantised weights meet x in integers: a block of x is rounded to 23 bits with one power of two, which errs by no more
// than float32 sums do, and split into three planes of signed bytes, so that three packed dot products stand for four
// multiplications, additions and the conversions that GPUs are slow at. The block's sum is exact.
#ifndef NO_INTEGER_DOT
#extension GL_EXT_integer_dot_product : require
#endif
#define BLOCKS ((COLS + 31u) / 32u)
#define CHUNKS ((BLOCKS + LANES - 1u) / LANES)
#define QUADS (COLS / 4u)
#include "reduce.glsl"

#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define PITCH 5u  // vec4s of half a block in shared memory, one more than it has: blocks start in different banks
shared vec4 staged[LANES * PITCH];
shared float row_parts[2u * SUBGROUPS * SUMS];  // of two tiles in turn

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

// ---- x ----

// An invocation loads quads q0 to q7 of a chunk side by side with its neighbours, all at once; they reach the invocation
// that owns their block through shared memory, half a block at a time.
uint quad_place_in(uint chunk, uint k) {
    const uint item = (k & 3u) * LANES + gl_LocalInvocationIndex;
    return (chunk * LANES + item / 4u) * 8u + (k & 4u) + item % 4u;
}

vec4 x_quad(uint chunk, uint k) {
    const uint quad = quad_place_in(chunk, k);
    vec4 v = vec4(0.0);
    if (quad < QUADS) v = x.data[quad];
    return v;
}

vec4 norm_quad(uint chunk, uint k) {
    const uint quad = quad_place_in(chunk, k);
    vec4 v = vec4(0.0);
    if (quad < QUADS) v = norm.data[quad];
    return v;
}

void stage_quad(uint k, vec4 v) {
    const uint item = k * LANES + gl_LocalInvocationIndex;
    staged[item / 4u * PITCH + item % 4u] = v;
}

void stage_half(vec4 a, vec4 b, vec4 c, vec4 d) {
    stage_quad(0u, a);
    stage_quad(1u, b);
    stage_quad(2u, c);
    stage_quad(3u, d);
    barrier();
}

#define DECLARE_QUADS(q) vec4 q##a, q##b, q##c, q##d, q##e, q##f, q##g, q##h;
#define LOAD_QUADS(q, load, chunk) \
    q##a = load(chunk, 0u); q##b = load(chunk, 1u); q##c = load(chunk, 2u); q##d = load(chunk, 3u); \
    q##e = load(chunk, 4u); q##f = load(chunk, 5u); q##g = load(chunk, 6u); q##h = load(chunk, 7u);

// The RMS norm's factor: an invocation sums the squares of its quads in this order, as norm.comp does.
#define ADD_SQUARES(sum, q) \
    sum = add_quad(sum, q##a, q##a); sum = add_quad(sum, q##b, q##b); sum = add_quad(sum, q##c, q##c); \
    sum = add_quad(sum, q##d, q##d); sum = add_quad(sum, q##e, q##e); sum = add_quad(sum, q##f, q##f); \
    sum = add_quad(sum, q##g, q##g); sum = add_quad(sum, q##h, q##h);
float norm_factor(float squares) { return inversesqrt(fma(workgroup_sum(squares), inverse_width, eps)); }

// with NORM_LATE the norm's weights are loaded after its sum, which costs a wait and saves registers
#ifdef NORM_LATE
#define LOAD_NORM_EARLY
#define LOAD_NORM_LATE LOAD_NORM(0u)
#else
#define LOAD_NORM_EARLY LOAD_NORM(0u)
#define LOAD_NORM_LATE
#endif
#ifdef NORM
#define DECLARE_NORM DECLARE_QUADS(n_) float norm_scale;
#define LOAD_NORM(chunk) LOAD_QUADS(n_, norm_quad, chunk)
#define SCALE_QUAD_BY_NORM(one) q_##one = q_##one * norm_scale * n_##one;
#define APPLY_NORM \
    SCALE_QUAD_BY_NORM(a) SCALE_QUAD_BY_NORM(b) SCALE_QUAD_BY_NORM(c) SCALE_QUAD_BY_NORM(d) \
    SCALE_QUAD_BY_NORM(e) SCALE_QUAD_BY_NORM(f) SCALE_QUAD_BY_NORM(g) SCALE_QUAD_BY_NORM(h)
#define NORM_OF_ONE_CHUNK { float squares = 0.0; ADD_SQUARES(squares, q_) norm_scale = norm_factor(squares); }
#define NORM_OF_CHUNKS \
    { \
        float squares = 0.0; \
        for (uint chunk = 0u; chunk < CHUNKS; ++chunk) { LOAD_QUADS(q_, x_quad, chunk) ADD_SQUARES(squares, q_) } \
        norm_scale = norm_factor(squares); \
    }
#else
#define DECLARE_NORM
#define LOAD_NORM(chunk)
#define APPLY_NORM
#define NORM_OF_ONE_CHUNK
#define NORM_OF_CHUNKS
#endif

vec4 own_quad(uint i) { return staged[gl_LocalInvocationIndex * PITCH + i]; }
float quad_total(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

#ifdef PLAIN
#define DECLARE_X vec4 x0, x1, x2, x3, x4, x5, x6, x7;
#define TAKE_X \
    stage_half(q_a, q_b, q_c, q_d); \
    x0 = own_quad(0u); x1 = own_quad(1u); x2 = own_quad(2u); x3 = own_quad(3u); \
    barrier(); \
    stage_half(q_e, q_f, q_g, q_h); \
    x4 = own_quad(0u); x5 = own_quad(1u); x6 = own_quad(2u); x7 = own_quad(3u);
#else
float quad_top(vec4 v) { return max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w))); }

// The planes of a quad of x: round(x * factor), with |x * factor| < 2^22, is x + 256 y + 65536 z.
ivec3 quad_planes(vec4 v, float factor) {
    // the addition of 1.5 * 2^23 leaves the rounded value in the lowest bits; that of 0x80 a byte makes all bytes unsigned
    const uvec4 bits = floatBitsToUint(fma(v, vec4(factor), vec4(12582912.0))) - 0x4B400000u + 0x00808080u;
    const uint even01 = (bits.x & 0x00ff00ffu) | ((bits.y & 0x00ff00ffu) << 8);
    const uint even23 = (bits.z & 0x00ff00ffu) | ((bits.w & 0x00ff00ffu) << 8);
    const uint odd01 = ((bits.x >> 8) & 0xffu) | (bits.y & 0xff00u);
    const uint odd23 = ((bits.z >> 8) & 0xffu) | (bits.w & 0xff00u);
    const uvec3 bytes = uvec3(
        (even01 & 0xffffu) | (even23 << 16), odd01 | (odd23 << 16), (even01 >> 16) | (even23 & 0xffff0000u));
    return ivec3(bytes ^ 0x80808080u);
}

ivec3 add_totals(ivec3 sums, ivec3 planes) { return add_dots(sums, 0x01010101u, planes); }

#define DECLARE_X ivec3 x0, x1, x2, x3, x4, x5, x6, x7, low_start, high_start; float total, x_scale;
#define TAKE_X \
    { \
        stage_half(q_a, q_b, q_c, q_d); \
        const vec4 v0 = own_quad(0u), v1 = own_quad(1u), v2 = own_quad(2u), v3 = own_quad(3u); \
        barrier(); \
        stage_half(q_e, q_f, q_g, q_h); \
        const vec4 v4 = own_quad(0u), v5 = own_quad(1u), v6 = own_quad(2u), v7 = own_quad(3u); \
        total = ((quad_total(v0) + quad_total(v1)) + (quad_total(v2) + quad_total(v3))) \
            + ((quad_total(v4) + quad_total(v5)) + (quad_total(v6) + quad_total(v7))); \
        const float top = max(max(max(quad_top(v0), quad_top(v1)), max(quad_top(v2), quad_top(v3))), \
            max(max(quad_top(v4), quad_top(v5)), max(quad_top(v6), quad_top(v7)))); \
        const uint exponent = clamp(floatBitsToUint(top) >> 23, 22u, 253u); \
        const float factor = uintBitsToFloat((275u - exponent) << 23); \
        /* a sum that is no number stays none */ \
        x_scale = uintBitsToFloat((exponent - 21u) << 23) + (total - total); \
        x0 = quad_planes(v0, factor); x1 = quad_planes(v1, factor); \
        x2 = quad_planes(v2, factor); x3 = quad_planes(v3, factor); \
        x4 = quad_planes(v4, factor); x5 = quad_planes(v5, factor); \
        x6 = quad_planes(v6, factor); x7 = quad_planes(v7, factor); \
        low_start = -OFFSET * add_totals(add_totals(add_totals(add_totals(ivec3(0), x0), x1), x2), x3); \
        high_start = -OFFSET * add_totals(add_totals(add_totals(add_totals(ivec3(0), x4), x5), x6), x7); \
        if (WEIGHT_TYPE != WEIGHT_Q6_K) low_start += high_start; \
    }
#endif

// ---- sums ----

// M(name, number) for each sum: names, because glslang pastes no numbers
#if SUMS == 1
#define EACH_SUM(M) M(a, 0u)
#elif SUMS == 2
#define EACH_SUM(M) M(a, 0u) M(b, 1u)
#elif SUMS == 4
#define EACH_SUM(M) M(a, 0u) M(b, 1u) M(c, 2u) M(d, 3u)
#elif SUMS == 8
#define EACH_SUM(M) M(a, 0u) M(b, 1u) M(c, 2u) M(d, 3u) M(e, 4u) M(f, 5u) M(g, 6u) M(h, 7u)
#else
#define EACH_SUM(M) M(a, 0u) M(b, 1u) M(c, 2u) M(d, 3u) M(e, 4u) M(f, 5u) M(g, 6u) M(h, 7u) \
    M(i, 8u) M(j, 9u) M(k, 10u) M(l, 11u) M(m, 12u) M(n, 13u) M(o, 14u) M(p, 15u)
#endif

// Two sums over the lanes become one: half of the lanes go on with the first, half with the second.
float halve(float first, float second, uint mask) {
    const bool upper = (gl_LocalInvocationIndex & mask) != 0u;
    return (upper ? second : first) + subgroupShuffleXor(upper ? first : second, mask);
}

// Leave in row_parts each subgroup's sums of its lanes. To halve the sums at each step of the tree costs two shuffles a
// sum instead of five, and adds the same pairs.
#define HALF_SUBGROUP (SUBGROUP_SIZE / 2u)
#define FOLD(one, two, step) sum_##one = halve(sum_##one, sum_##two, HALF_SUBGROUP >> step);
#if SUMS == 1
#define FOLD_SUMS
#elif SUMS == 2
#define FOLD_SUMS FOLD(a, b, 0)
#elif SUMS == 4
#define FOLD_SUMS FOLD(a, c, 0) FOLD(b, d, 0) FOLD(a, b, 1)
#elif SUMS == 8
#define FOLD_SUMS FOLD(a, e, 0) FOLD(b, f, 0) FOLD(c, g, 0) FOLD(d, h, 0) FOLD(a, c, 1) FOLD(b, d, 1) FOLD(a, b, 2)
#else
#define FOLD_SUMS \
    FOLD(a, i, 0) FOLD(b, j, 0) FOLD(c, k, 0) FOLD(d, l, 0) FOLD(e, m, 0) FOLD(f, n, 0) FOLD(g, o, 0) FOLD(h, p, 0) \
    FOLD(a, e, 1) FOLD(b, f, 1) FOLD(c, g, 1) FOLD(d, h, 1) FOLD(a, c, 2) FOLD(b, d, 2) FOLD(a, b, 3)
#endif

// `parity`: 0 and 1 in turn, so that one barrier a tile is enough
void store_sum(float sum, uint parity) {
    const uint lane = gl_LocalInvocationIndex % SUBGROUP_SIZE;
    [[unroll]] for (uint m = SUBGROUP_SIZE / SUMS / 2u; m > 0u; m /= 2u) sum += subgroupShuffleXor(sum, m);
    if (lane % (SUBGROUP_SIZE / SUMS) == 0u) {
        const uint subgroup = parity * SUBGROUPS + gl_LocalInvocationIndex / SUBGROUP_SIZE;
        row_parts[subgroup * SUMS + lane / (SUBGROUP_SIZE / SUMS)] = sum;
    }
    barrier();
}

float row_total(uint i, uint parity) {
    const uint first = parity * SUBGROUPS * SUMS + i;
    float total = row_parts[first];
    [[unroll]] for (uint s = 1u; s < SUBGROUPS; ++s) total += row_parts[first + s * SUMS];
    return total;
}

// ---- tiles ----
// BEGIN_TILES ... END_TILES enclose what is done with the sums of tile `tile`, where row_total(i, parity) is row
// ROW_OF(tile, i) of tensor i / ROWS. PREFETCH(tile) loads early what they need for that. A lane beyond the last block repeats that one on x = 0.
#ifndef PREFETCH
#define PREFETCH(tile)
#endif
#define TILE_COUNT ((rows + ROWS - 1u) / ROWS)
#define DECLARE_ROW(name, i) Packed packed_##name; float sum_##name;
#define LOAD_ROW(name, i) packed_##name = load_packed(row_base(ROW_OF(loaded, i), BLOCKS, i / ROWS), block);
#define CLEAR_ROW(name, i) sum_##name = 0.0;
#define ADD_ROW(name, i) sum_##name = BLOCK_SUM(sum_##name, packed_##name);
#if (COLS + 31) / 32 > LANES
#define BEGIN_TILES \
    DECLARE_X \
    DECLARE_QUADS(q_) \
    DECLARE_NORM \
    EACH_SUM(DECLARE_ROW) \
    NORM_OF_CHUNKS \
    uint parity = 0u; \
    for (uint tile = gl_WorkGroupID.x; tile < TILE_COUNT; tile += gl_NumWorkGroups.x, parity ^= 1u) { \
        EACH_SUM(CLEAR_ROW) \
        PREFETCH(tile) \
        const uint loaded = tile; \
        for (uint chunk = 0u; chunk < CHUNKS; ++chunk) { \
            const uint block = min(chunk * LANES + gl_LocalInvocationIndex, BLOCKS - 1u); \
            EACH_SUM(LOAD_ROW) \
            LOAD_QUADS(q_, x_quad, chunk) \
            LOAD_NORM(chunk) \
            APPLY_NORM \
            barrier(); \
            TAKE_X \
            EACH_SUM(ADD_ROW) \
        } \
        FOLD_SUMS \
        store_sum(sum_a, parity);
#else
#define BEGIN_TILES \
    DECLARE_X \
    DECLARE_QUADS(q_) \
    DECLARE_NORM \
    EACH_SUM(DECLARE_ROW) \
    const uint block = min(gl_LocalInvocationIndex, BLOCKS - 1u); \
    uint loaded = gl_WorkGroupID.x; \
    LOAD_QUADS(q_, x_quad, 0u) \
    LOAD_NORM_EARLY \
    EACH_SUM(LOAD_ROW) \
    NORM_OF_ONE_CHUNK \
    LOAD_NORM_LATE \
    APPLY_NORM \
    TAKE_X \
    uint parity = 0u; \
    for (uint tile = gl_WorkGroupID.x; tile < TILE_COUNT; tile += gl_NumWorkGroups.x, parity ^= 1u) { \
        PREFETCH(tile) \
        EACH_SUM(CLEAR_ROW) \
        EACH_SUM(ADD_ROW) \
        FOLD_SUMS \
        loaded = tile + gl_NumWorkGroups.x; \
        if (loaded < TILE_COUNT) { EACH_SUM(LOAD_ROW) } \
        store_sum(sum_a, parity);
#endif
#define END_TILES }
