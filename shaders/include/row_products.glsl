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
// Small integers become floats without a conversion, which GPUs do at a fraction of their rate: with the exponent of
// 2^23 or-ed to them, bits that stand for q 2^b are 2^23 + q 2^b, and a subtraction leaves q 2^b exactly. x carries the
// 2^-b, so fields need no shift, and the product is that of q and x to the bit.
#define MAGIC 0x4B000000u
#define TWO_23 8388608.0
#define BLOCKS ((COLS + 31u) / 32u)
#define CHUNKS ((BLOCKS + LANES - 1u) / LANES)
#define QUADS (COLS / 4u)
#include "reduce.glsl"

#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define PITCH 5u  // vec4s of half a block in shared memory, one more than it has: blocks start in different banks
shared vec4 staged[LANES * PITCH];
shared float row_parts[2u * SUBGROUPS * SUMS];  // of two tiles in turn

#if WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q5_1 || WEIGHT_TYPE == WEIGHT_Q4_K
#define HAS_MIN 1
#else
#define HAS_MIN 0
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

float small_float(uint value) { return uintBitsToFloat(value | MAGIC) - TWO_23; }

vec4 fields(uvec4 bits, vec4 offsets) { return uintBitsToFloat(bits | MAGIC) - (TWO_23 + offsets); }

float add_quad(float sum, vec4 q, vec4 v) { return fma(q.w, v.w, fma(q.z, v.z, fma(q.y, v.y, fma(q.x, v.x, sum)))); }

// For each type: what the x of a block's quads 0-3 and 4-7 carry (the 2^-b of their places), and the products of the
// quads in the low and in the high half of the block, in order, with their x.
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q4_K
#define LOW_PLACES vec4(1.0, 256.0, 65536.0, 16.0)
#define HIGH_PLACES vec4(16.0, 4096.0, 1.0, 256.0)
#if WEIGHT_TYPE == WEIGHT_Q4_0
#define OFFSET Q4_0_OFFSET
#else
#define OFFSET 0.0
#endif
float add_low(float sum, uint word, vec4 v) {
    return add_quad(sum, fields(uvec4(word & 0xfu, word & 0xf00u, word & 0xf0000u, (word >> 20) & 0xf0u), OFFSET * LOW_PLACES), v);
}
float add_high(float sum, uint word, vec4 v) {
    const uint top = word >> 20;
    return add_quad(sum, fields(uvec4(word & 0xf0u, word & 0xf000u, top & 0xfu, top & 0xf00u), OFFSET * HIGH_PLACES), v);
}
#define LOW_SUM(p) add_low(add_low(add_low(add_low(0.0, p.u0.x, x0), p.u0.y, x1), p.u0.z, x2), p.u0.w, x3)
#define HIGH_SUM(p) add_high(add_high(add_high(add_high(0.0, p.u0.x, x4), p.u0.y, x5), p.u0.z, x6), p.u0.w, x7)
#elif WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1 || WEIGHT_TYPE == WEIGHT_Q6_K
#define LOW_PLACES vec4(1.0, 256.0, 65536.0, 1.0)
#define HIGH_PLACES LOW_PLACES
#if WEIGHT_TYPE == WEIGHT_Q5_0
#define OFFSET Q5_0_OFFSET
#elif WEIGHT_TYPE == WEIGHT_Q6_K
#define OFFSET Q6_K_OFFSET
#else
#define OFFSET 0.0
#endif
float add_bytes(float sum, uint word, vec4 v) {
    return add_quad(sum, fields(uvec4(word & 0xffu, word & 0xff00u, word & 0xff0000u, word >> 24), OFFSET * LOW_PLACES), v);
}
#define QUAD_BYTES(p, i) unit_bytes(p.u0, p.high, i)
#define LOW_SUM(p) \
    add_bytes(add_bytes(add_bytes(add_bytes(0.0, QUAD_BYTES(p, 0u), x0), QUAD_BYTES(p, 1u), x1), QUAD_BYTES(p, 2u), x2), QUAD_BYTES(p, 3u), x3)
#define HIGH_SUM(p) \
    add_bytes(add_bytes(add_bytes(add_bytes(0.0, QUAD_BYTES(p, 4u), x4), QUAD_BYTES(p, 5u), x5), QUAD_BYTES(p, 6u), x6), QUAD_BYTES(p, 7u), x7)
#elif WEIGHT_TYPE == WEIGHT_Q8_0
#define LOW_PLACES vec4(1.0, 256.0, 1.0, 256.0)
#define HIGH_PLACES LOW_PLACES
float add_bytes(float sum, uint word, vec4 v) {
    word ^= 0x80808080u;
    const uint top = word >> 16;
    return add_quad(sum, fields(uvec4(word & 0xffu, word & 0xff00u, top & 0xffu, top & 0xff00u), 128.0 * LOW_PLACES), v);
}
#define LOW_SUM(p) add_bytes(add_bytes(add_bytes(add_bytes(0.0, p.u0.x, x0), p.u0.y, x1), p.u0.z, x2), p.u0.w, x3)
#define HIGH_SUM(p) add_bytes(add_bytes(add_bytes(add_bytes(0.0, p.u1.x, x4), p.u1.y, x5), p.u1.z, x6), p.u1.w, x7)
#else
#define LOW_PLACES vec4(1.0)
#define HIGH_PLACES vec4(1.0)
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
#endif

// sum plus a block's product from those of its halves; `total` is the sum of its x
float add_block(float sum, Packed p, uint block, float low, float high, float total) {
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q8_0
    return fma(unpackHalf2x16(p.scales.x >> (block & 1u) * 16u).x, low + high, sum);
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const uint two = (p.scales.x >> (block & 1u) * 16u) ^ 0x8080u;
    const float d = unpackHalf2x16(p.scales.y >> ((block >> 3) & 1u) * 16u).x;
    sum = fma(d * (small_float(two & 0xffu) - 128.0), low, sum);
    return fma(d * (small_float((two >> 8) & 0xffu) - 128.0), high, sum);
#elif HAS_MIN
#if WEIGHT_TYPE == WEIGHT_Q4_K
    // dequant.glsl's k4_scale without conversions
    const uint i = block & 7u;
    const uvec3 bytes = p.scales.yzw >> ((i & 3u) * 8u);
    const uint scale = (i & 4u) == 0u ? bytes.x & 63u : (bytes.z & 15u) | ((bytes.x >> 2) & 48u);
    const uint minimum = (i & 4u) == 0u ? bytes.y & 63u : ((bytes.z >> 4) & 15u) | ((bytes.y >> 2) & 48u);
    const vec2 dm = unpackHalf2x16(p.scales.x) * vec2(small_float(scale), -small_float(minimum));
#else
    const vec2 dm = unpackHalf2x16(p.scales.x);
#endif
    return fma(dm.y, total, fma(dm.x, low + high, sum));
#else
    return sum + (low + high);
#endif
}

// ---- x ----

// The RMS norm's factor: invocation t sums quads t, t + LANES, ... as norm.comp does.
float find_norm_scale() {
#ifdef NORM
    float sum = 0.0;
    for (uint quad = gl_LocalInvocationIndex; quad < QUADS; quad += LANES) {
        const vec4 v = x.data[quad];
        sum = add_quad(sum, v, v);
    }
    return inversesqrt(fma(workgroup_sum(sum), inverse_width, eps));
#else
    return 1.0;
#endif
}

// Put a quad of the first or second half of a chunk's blocks where the invocation that owns the block finds it.
void stage_quad(uint chunk, uint half_block, uint j, float norm_scale) {
    const uint item = j * LANES + gl_LocalInvocationIndex;
    const uint quad = (chunk * LANES + item / 4u) * 8u + half_block * 4u + item % 4u;
    vec4 v = vec4(0.0);
    if (quad < QUADS) {
        v = x.data[quad];
#ifdef NORM
        v = v * norm_scale * norm.data[quad];
#endif
    }
    staged[item / 4u * PITCH + item % 4u] = v;
}

void stage_half(uint chunk, uint half_block, float norm_scale) {
    stage_quad(chunk, half_block, 0u, norm_scale);
    stage_quad(chunk, half_block, 1u, norm_scale);
    stage_quad(chunk, half_block, 2u, norm_scale);
    stage_quad(chunk, half_block, 3u, norm_scale);
    barrier();
}

vec4 own_quad(uint i) { return staged[gl_LocalInvocationIndex * PITCH + i]; }
float quad_total(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

#define DECLARE_X vec4 x0, x1, x2, x3, x4, x5, x6, x7; float total, norm_scale;
#define TAKE_QUAD(v, i, places) v = own_quad(i); total += quad_total(v); v = v * (1.0 / places);
#define TAKE_X(chunk) \
    total = 0.0; \
    stage_half(chunk, 0u, norm_scale); \
    TAKE_QUAD(x0, 0u, LOW_PLACES) TAKE_QUAD(x1, 1u, LOW_PLACES) TAKE_QUAD(x2, 2u, LOW_PLACES) TAKE_QUAD(x3, 3u, LOW_PLACES) \
    barrier(); \
    stage_half(chunk, 1u, norm_scale); \
    TAKE_QUAD(x4, 0u, HIGH_PLACES) TAKE_QUAD(x5, 1u, HIGH_PLACES) TAKE_QUAD(x6, 2u, HIGH_PLACES) TAKE_QUAD(x7, 3u, HIGH_PLACES)

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
// ROW_OF(tile, i) of tensor i / ROWS. A lane beyond the last block repeats that one on x = 0.
#define TILE_COUNT ((rows + ROWS - 1u) / ROWS)
#define DECLARE_ROW(name, i) Packed packed_##name; float sum_##name;
#define LOAD_ROW(name, i) packed_##name = load_packed(row_base(ROW_OF(loaded, i), BLOCKS, i / ROWS), block);
#define CLEAR_ROW(name, i) sum_##name = 0.0;
#define ADD_ROW(name, i) \
    sum_##name = add_block(sum_##name, packed_##name, block, LOW_SUM(packed_##name), HIGH_SUM(packed_##name), total);
#if (COLS + 31) / 32 > LANES
#define BEGIN_TILES \
    DECLARE_X \
    EACH_SUM(DECLARE_ROW) \
    norm_scale = find_norm_scale(); \
    uint parity = 0u; \
    for (uint tile = gl_WorkGroupID.x; tile < TILE_COUNT; tile += gl_NumWorkGroups.x, parity ^= 1u) { \
        EACH_SUM(CLEAR_ROW) \
        const uint loaded = tile; \
        for (uint chunk = 0u; chunk < CHUNKS; ++chunk) { \
            const uint block = min(chunk * LANES + gl_LocalInvocationIndex, BLOCKS - 1u); \
            EACH_SUM(LOAD_ROW) \
            barrier(); \
            TAKE_X(chunk) \
            EACH_SUM(ADD_ROW) \
        } \
        FOLD_SUMS \
        store_sum(sum_a, parity);
#else
#define BEGIN_TILES \
    DECLARE_X \
    EACH_SUM(DECLARE_ROW) \
    const uint block = min(gl_LocalInvocationIndex, BLOCKS - 1u); \
    uint loaded = gl_WorkGroupID.x; \
    EACH_SUM(LOAD_ROW) \
    norm_scale = find_norm_scale(); \
    TAKE_X(0u) \
    uint parity = 0u; \
    for (uint tile = gl_WorkGroupID.x; tile < TILE_COUNT; tile += gl_NumWorkGroups.x, parity ^= 1u) { \
        EACH_SUM(CLEAR_ROW) \
        EACH_SUM(ADD_ROW) \
        FOLD_SUMS \
        loaded = tile + gl_NumWorkGroups.x; \
        if (loaded < TILE_COUNT) { EACH_SUM(LOAD_ROW) } \
        store_sum(sum_a, parity);
#endif
#define END_TILES }
