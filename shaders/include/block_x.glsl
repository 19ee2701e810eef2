// How x reaches the lanes of a workgroup: all invocations load it once, norm it (with NORM) and leave it in shared memory
// as block_products.glsl takes it, STAGE_BLOCKS blocks at a time; each lane then takes the block it multiplies by.
//
// An invocation has two quads (of four columns) of x at a time, the same one of a block's lower and of its upper half, four
// neighbours a block; what a block needs of all its quads (sums, the largest) meets in a shuffle-xor tree. So the arithmetic
// does not depend on how many invocations there are. `item` numbers such pairs of quads.
#define STAGES ((BLOCKS + STAGE_BLOCKS - 1u) / STAGE_BLOCKS)
#define STAGE_TURNS ((STAGED_BLOCKS * 4u + GROUP - 1u) / GROUP)
#define LOW_PLACE(item) ((item) / 4u * 8u + (item) % 4u)  // of the pair's first quad
#define HIGH_PLACE(item) (LOW_PLACE(item) + 4u)
#ifndef STAGED_BLOCKS  // that shared memory has room for, a constant
#define STAGED_BLOCKS min(STAGE_BLOCKS, BLOCKS)
#define SQUARE_BLOCKS BLOCKS
#endif
#ifdef PLAIN
#define PITCH 9u  // vec4s of a block in shared memory, one more than it has: blocks start in different banks
shared vec4 staged[STAGED_BLOCKS * PITCH];
#else
#define PITCH 7u  // three planes of two ivec4s, then what a block has one of
shared ivec4 staged[STAGED_BLOCKS * PITCH];
#endif

vec4 x_quad(uint quad) {
    vec4 v = vec4(0.0);
    if (quad < QUADS) v = x.data[quad];
    return v;
}

// sums over the quads of a half block
float half_block_sum(float value) {
    value += subgroupShuffleXor(value, 1u);
    return value + subgroupShuffleXor(value, 2u);
}
int half_block_sum(int value) {
    value += subgroupShuffleXor(value, 1u);
    return value + subgroupShuffleXor(value, 2u);
}

#ifdef NORM
// The RMS norm's factor, as norm.comp has it: a sum a block, then the blocks over the lanes of a subgroup.
shared float square_sums[SQUARE_BLOCKS];

void square_pair(uint item, vec4 low, vec4 high) {
    const float sum = half_block_sum(add_quad(0.0, low, low)) + half_block_sum(add_quad(0.0, high, high));
    if (item % 4u == 0u && item < BLOCKS * 4u) square_sums[item / 4u] = sum;
}

float norm_factor() {
    barrier();
    float sum = 0.0;
    // unrolled, since loads that are used behind a loop wait for all others: NVIDIA's compiler knows them apart up to there
    [[unroll]] for (uint first = 0u; first < SQUARE_BLOCKS; first += SUBGROUP_SIZE) {
        const uint b = first + gl_LocalInvocationIndex % SUBGROUP_SIZE;
        if (first + SUBGROUP_SIZE <= BLOCKS || b < BLOCKS) sum += square_sums[b];
    }
    [[unroll]] for (uint m = SUBGROUP_SIZE / 2u; m > 0u; m /= 2u) sum += subgroupShuffleXor(sum, m);
    return inversesqrt(fma(sum, inverse_width, eps));
}

vec4 norm_quad(uint quad) {
    vec4 v = vec4(0.0);
    if (quad < QUADS) v = norm.data[quad];
    return v;
}

// Rounded twice, as norm.comp does. A compiler may not merge it into a sum that follows; llvmpipe does so even where that
// is forbidden (`precise`), but not through bits that it does not know (rows < 2^31).
vec4 scaled(vec4 v, float scale, vec4 weight) {
    return uintBitsToFloat(floatBitsToUint(v * scale * weight) ^ (rows >> 31));
}
#endif

#ifdef PLAIN
void stage_pair(uint item, vec4 low, vec4 high) {
    staged[item / 4u * PITCH + item % 4u] = low;
    staged[item / 4u * PITCH + item % 4u + 4u] = high;
}
#define DECLARE_X vec4 x0, x1, x2, x3, x4, x5, x6, x7;
#define CLEAR_X x0 = x1 = x2 = x3 = x4 = x5 = x6 = x7 = vec4(0.0);
#define TAKE_X(at) \
    { \
        const uint place = (at) * PITCH; \
        x0 = staged[place]; x1 = staged[place + 1u]; x2 = staged[place + 2u]; x3 = staged[place + 3u]; \
        x4 = staged[place + 4u]; x5 = staged[place + 5u]; x6 = staged[place + 6u]; x7 = staged[place + 7u]; \
    }
#else
// A quad of x as integers: round(x * factor), with |x * factor| < 2^22, from the lowest bits of 1.5 * 2^23 more.
ivec4 quad_integers(vec4 v, float factor) {
    return ivec4(floatBitsToUint(fma(v, vec4(factor), vec4(12582912.0))) - 0x4B400000u);
}

// Their planes: an integer is x + 256 y + 65536 z.
ivec3 quad_planes(ivec4 integers) {
    const uvec4 bits = uvec4(integers) + 0x00808080u;  // which makes all bytes unsigned
    const uint even01 = (bits.x & 0x00ff00ffu) | ((bits.y & 0x00ff00ffu) << 8);
    const uint even23 = (bits.z & 0x00ff00ffu) | ((bits.w & 0x00ff00ffu) << 8);
    const uint odd01 = ((bits.x >> 8) & 0xffu) | (bits.y & 0xff00u);
    const uint odd23 = ((bits.z >> 8) & 0xffu) | (bits.w & 0xff00u);
    const uvec3 bytes = uvec3(
        (even01 & 0xffffu) | (even23 << 16), odd01 | (odd23 << 16), (even01 >> 16) | (even23 & 0xffff0000u));
    return ivec3(bytes ^ 0x80808080u);
}

float quad_sum(vec4 v) { return (v.x + v.y) + (v.z + v.w); }
int quad_sum(ivec4 v) { return (v.x + v.y) + (v.z + v.w); }

// What a block, or with HALF_SCALES each half of it, has one of beside the planes: the sum of x, or with OFFSET, of which its
// dots begin with -OFFSET times, the sum of the integers.
#if OFFSET != 0
#define TOTALS_OF(values, integers) quad_sum(integers)
#define TOTAL_BITS(total) total
#define Total int
#else
#define TOTALS_OF(values, integers) quad_sum(values)
#define TOTAL_BITS(total) floatBitsToInt(total)
#define Total float
#endif

void stage_pair(uint item, vec4 low, vec4 high) {
    // the largest by its bits, which tells of a block whether all of it are numbers, too
    const uvec4 magnitudes = max(floatBitsToUint(low) & 0x7fffffffu, floatBitsToUint(high) & 0x7fffffffu);
    uint top = max(max(magnitudes.x, magnitudes.y), max(magnitudes.z, magnitudes.w));
    [[unroll]] for (uint m = 1u; m < 4u; m *= 2u) top = max(top, subgroupShuffleXor(top, m));
    const uint exponent = max(top >> 23, 22u);
    const float factor = uintBitsToFloat((275u - exponent) << 23);
    const ivec4 low_integers = quad_integers(low, factor), high_integers = quad_integers(high, factor);
    const ivec3 low_planes = quad_planes(low_integers), high_planes = quad_planes(high_integers);
    const Total low_total = half_block_sum(TOTALS_OF(low, low_integers)), high_total = half_block_sum(TOTALS_OF(high, high_integers));
    const uint quad = item % 4u, place = item / 4u * PITCH;
    if (item >= min(STAGED_BLOCKS, BLOCKS) * 4u) return;
    [[unroll]] for (uint plane = 0u; plane < 3u; ++plane) {
        staged[place + 2u * plane][quad] = low_planes[plane];
        staged[place + 2u * plane + 1u][quad] = high_planes[plane];
    }
    if (quad != 0u) return;
    const int scale = top < 0x7f800000u ? int((exponent - 21u) << 23) : 0x7fc00000;
    staged[place + 6u] = ivec4(TOTAL_BITS(low_total + high_total), scale, TOTAL_BITS(low_total), TOTAL_BITS(high_total));
}

#ifdef HALF_SCALES
#define TOTAL_PLACES zw
#else
#define TOTAL_PLACES xx
#endif
#if OFFSET != 0
#define TAKE_TOTALS(whole) \
    low_start = offset_planes(whole.TOTAL_PLACES.x); \
    high_start = offset_planes(whole.TOTAL_PLACES.y);
// as planes, so that sums stay exact
ivec3 offset_planes(int total) { return -OFFSET * ivec3(total & 0xffff, 0, total >> 16); }
#else
#define TAKE_TOTALS(whole) \
    low_start = ivec3(0); \
    high_start = ivec3(0); \
    totals = intBitsToFloat(whole.TOTAL_PLACES);
#endif
#define DECLARE_X ivec3 x0, x1, x2, x3, x4, x5, x6, x7, low_start, high_start; vec2 totals; float x_scale;
#define CLEAR_X x_scale = 0.0; totals = vec2(0.0);
#define TAKE_X(at) \
    { \
        const uint place = (at) * PITCH; \
        const ivec4 pa = staged[place], pb = staged[place + 1u], pc = staged[place + 2u]; \
        const ivec4 pd = staged[place + 3u], pe = staged[place + 4u], pf = staged[place + 5u]; \
        const ivec4 whole = staged[place + 6u]; \
        TAKE_TOTALS(whole) x_scale = intBitsToFloat(whole.y); \
        x0 = ivec3(pa.x, pc.x, pe.x); x1 = ivec3(pa.y, pc.y, pe.y); \
        x2 = ivec3(pa.z, pc.z, pe.z); x3 = ivec3(pa.w, pc.w, pe.w); \
        x4 = ivec3(pb.x, pd.x, pf.x); x5 = ivec3(pb.y, pd.y, pf.y); \
        x6 = ivec3(pb.z, pd.z, pf.z); x7 = ivec3(pb.w, pd.w, pf.w); \
    }
#endif

// ---- a workgroup's x ----

#ifdef NORM
#define DECLARE_NORM vec4 n[2u * STAGE_TURNS]; float norm_scale;
#define LOAD_NORM EACH_TURN_OF_X { n[2u * k] = norm_quad(LOW_PLACE(item)); n[2u * k + 1u] = norm_quad(HIGH_PLACE(item)); }
#define NORM_X \
    EACH_TURN_OF_X square_pair(item, v[2u * k], v[2u * k + 1u]); \
    norm_scale = norm_factor(); \
    [[unroll]] for (uint k = 0u; k < 2u * STAGE_TURNS; ++k) v[k] = scaled(v[k], norm_scale, n[k]);
#define NORM_OF_STAGES \
    for (uint item = gl_LocalInvocationIndex; item < STAGES * STAGE_TURNS * GROUP; item += GROUP) { \
        square_pair(item, x_quad(LOW_PLACE(item)), x_quad(HIGH_PLACE(item))); \
    } \
    norm_scale = norm_factor();
#define NORMED(quad) scaled(x_quad(quad), norm_scale, norm_quad(quad))
#else
#define DECLARE_NORM
#define LOAD_NORM
#define NORM_X
#define NORM_OF_STAGES
#define NORMED(quad) x_quad(quad)
#endif
#define EACH_TURN_OF_X \
    [[unroll]] for (uint k = 0u, item = gl_LocalInvocationIndex; k < STAGE_TURNS; ++k, item += GROUP)

#if (COLS + 31) / 32 <= STAGE_BLOCKS
// all of x at once, its loads in flight together
#define LOAD_X \
    vec4 v[2u * STAGE_TURNS]; \
    EACH_TURN_OF_X { v[2u * k] = x_quad(LOW_PLACE(item)); v[2u * k + 1u] = x_quad(HIGH_PLACE(item)); }
#define PREPARE_X \
    NORM_X \
    EACH_TURN_OF_X { STAGE_GUARD(item) stage_pair(item, v[2u * k], v[2u * k + 1u]); } \
    barrier();
#define STAGE_X(stage)
#else
#undef LOAD_NORM
#define LOAD_NORM
#define LOAD_X
#define PREPARE_X { NORM_OF_STAGES }
#define STAGE_X(stage) \
    barrier(); \
    for (uint item = gl_LocalInvocationIndex; item < STAGE_TURNS * GROUP; item += GROUP) { \
        const uint first = (stage) * STAGE_BLOCKS * 8u; \
        STAGE_GUARD(item) stage_pair(item, NORMED(first + LOW_PLACE(item)), NORMED(first + HIGH_PLACE(item))); \
    } \
    barrier();
#endif
#ifdef PLAIN
#define STAGE_GUARD(item) if (item < STAGED_BLOCKS * 4u)
#else
#define STAGE_GUARD(item)
#endif
