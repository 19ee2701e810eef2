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
#define BLOCKS ((COLS + 31u) / 32u)
#define CHUNKS ((BLOCKS + LANES - 1u) / LANES)
#define QUADS (COLS / 4u)
#include "reduce.glsl"

#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define PITCH 5u  // vec4s of half a block in shared memory, one more than it has: blocks start in different banks
shared vec4 staged[LANES * PITCH];
shared float row_parts[2u * SUBGROUPS * SUMS];  // of two tiles in turn
#include "block_products.glsl"
#include "block_x.glsl"

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
