// Rows on GPUs: LANES invocations (a team) share a row of COLS columns, lane t taking blocks (of 32 columns) t, t + LANES,
// ... in order. The blocks' sums meet in a shuffle-xor tree in each subgroup, then subgroup by subgroup, so a row's
// arithmetic depends on LANES and COLS alone, never on how many rows a team or teams a workgroup has.
//
// A workgroup of TEAMS teams makes x ready once (block_x.glsl). Its teams take tiles of ROWS neighbouring rows, one
// each, and then those `gl_NumWorkGroups.x` workgroups on.
//
// The rows are unrolled by hand: no array of them is indexed by a variable or passed to a function.
//
// Half of a tile's rows are always on their way: a turn asks for its second half, multiplies the first, asks for the next
// turn's first half, multiplies the second. NVIDIA's compiler has a warp wait for all of a loop's loads together. So a turn
// waits for its second half before it asks for what is next (`arrived`), and multiplies it after that (after_sums, see
// dequant.glsl: a zero from shared memory, loaded behind the barrier that ASKED is); and there is no branch in a turn. With
// ONE_TURN a team has one tile at most and there is no loop.
//
// Left alone, that compiler also asks for weights just before it uses them, to need fewer registers. ASKED stands behind
// loads of the loop that must not come later: a barrier of a subgroup, which loads of buffers that may be written (FIXED in
// binding.glsl) do not pass. What is loaded first has the barrier that x is made ready by, or awaited by, behind it; one
// of its own would have x wait for all first weights, and costs SmolLM2, whose kernels have nothing else, 2%.
//
// Includers define SUMS, the rows (of all tensors) in a tile: a power of two up to 8 and to SUBGROUP_SIZE. They have x
// (vec4), norm (vec4; the RMS norm's weights, with NORM), and the push constants inverse_width and eps.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#define GROUP (TEAMS * LANES)
#define TEAM (gl_LocalInvocationIndex / LANES)
#define TEAM_LANE (gl_LocalInvocationIndex % LANES)
#define BLOCKS ((COLS + 31u) / 32u)
#define CHUNKS ((BLOCKS + LANES - 1u) / LANES)
#define QUADS (COLS / 4u)
#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define SLOTS min(SUBGROUP_SIZE / ROWS, 4u)  // tiles of a team whose results are written together, by lanes of a subgroup
#define OUT_SLOT (TEAM_LANE / ROWS)
#define OUT_ROW (TEAM_LANE % ROWS)
shared float row_parts[TEAMS * SLOTS * SUBGROUPS * SUMS];
shared uint zero;
#define ASKED subgroupBarrier();
#include "block_products.glsl"
#include "block_x.glsl"

// ---- sums ----

// M(name, number) for each sum: names, because glslang pastes no numbers. FIRST and SECOND are the halves of a tile.
#if SUMS == 1
#define EACH_FIRST(M) M(a, 0u)
#define EACH_SECOND(M)
#elif SUMS == 2
#define EACH_FIRST(M) M(a, 0u)
#define EACH_SECOND(M) M(b, 1u)
#elif SUMS == 4
#define EACH_FIRST(M) M(a, 0u) M(b, 1u)
#define EACH_SECOND(M) M(c, 2u) M(d, 3u)
#elif SUMS == 8
#define EACH_FIRST(M) M(a, 0u) M(b, 1u) M(c, 2u) M(d, 3u)
#define EACH_SECOND(M) M(e, 4u) M(f, 5u) M(g, 6u) M(h, 7u)
#else
#error SUMS is 1, 2, 4 or 8
#endif
#define EACH_SUM(M) EACH_FIRST(M) EACH_SECOND(M)

#include "halve.glsl"

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
#else
#define FOLD_SUMS FOLD(a, e, 0) FOLD(b, f, 0) FOLD(c, g, 0) FOLD(d, h, 0) FOLD(a, c, 1) FOLD(b, d, 1) FOLD(a, b, 2)
#endif

// `slot`: of the tiles whose results are written together
void store_sum(float sum, uint slot) {
    const uint lane = gl_LocalInvocationIndex % SUBGROUP_SIZE;
    [[unroll]] for (uint m = SUBGROUP_SIZE / SUMS / 2u; m > 0u; m /= 2u) sum += subgroupShuffleXor(sum, m);
    if (lane % (SUBGROUP_SIZE / SUMS) == 0u) {
        const uint subgroup = (TEAM * SLOTS + slot) * SUBGROUPS + TEAM_LANE / SUBGROUP_SIZE;
        row_parts[subgroup * SUMS + lane / (SUBGROUP_SIZE / SUMS)] = sum;
    }
}

float row_total(uint i) {
    const uint first = (TEAM * SLOTS + OUT_SLOT) * SUBGROUPS * SUMS + i;
    float total = row_parts[first];
    [[unroll]] for (uint s = 1u; s < SUBGROUPS; ++s) total += row_parts[first + s * SUMS];
    return total;
}

// ---- tiles ----
// BEGIN_TILES ... END_TILES enclose what is done with the sums: for lanes with `has_row`, row_total(OUT_ROW) is row
// ROW_OF(tile, OUT_ROW), and row_total(ROWS + OUT_ROW) that of the second tensor. The tile is the lane's own: SLOTS
// tiles meet there at once. PREFETCH(tile) loads early what they need for that, even where there is no such tile.
// PREPARE_END is done once, before x is made ready.
#ifndef PREFETCH
#define PREFETCH(tile)
#endif
#ifndef PREPARE_END
#define PREPARE_END
#endif
#define TILE_COUNT ((rows + ROWS - 1u) / ROWS)
#define FIRST_TILE(group) ((group) * TEAMS + TEAM)
#define BLOCK_OF(chunk) min((chunk) * LANES + TEAM_LANE, BLOCKS - 1u)
#define DECLARE_ROW(name, i) Packed packed_##name; float sum_##name;
#define LOAD_AT(name, i, at) packed_##name = load_packed(row_base(ROW_OF(loaded, i), BLOCKS, i / ROWS), at);
#define LOAD_ROW(name, i) LOAD_AT(name, i, block)
#define LOAD_NEXT(name, i) LOAD_AT(name, i, next_block + arrived)
#define XOR_SUM(name, i) ^ floatBitsToUint(sum_##name)
#define XOR_WORD(name, i) ^ packed_##name.u0.x
#define CLEAR_ROW(name, i) sum_##name = 0.0;
// A lane beyond the last block repeats that one with an x of zeros: to leave the product out would be a branch, into which
// compilers move the loads.
#if ((COLS + 31) / 32) % LANES == 0
#define CLEAR_SURPLUS(chunk)
#else
#define CLEAR_SURPLUS(chunk) if ((chunk) * LANES + TEAM_LANE >= BLOCKS) { CLEAR_X }
#endif
#define ADD_ROW(name, i) sum_##name = BLOCK_SUM(sum_##name, packed_##name);

#ifdef CODEBOOK
#define PREPARE_CODES fill_code_bytes();  // a barrier follows, x being made ready
#else
#define PREPARE_CODES
#endif

#if defined(ONE_TURN) && (COLS + 31) / 32 <= LANES
#define ONE_BLOCK  // a lane has one of each row of its one tile
#endif
// x, which the kernel before wrote, comes first where it is there; where it is awaited, the weights travel meanwhile
#ifdef ONE_BLOCK
#define EACH_EARLY EACH_SUM
#else
#define EACH_EARLY EACH_FIRST
#endif
#define OWN_AWAIT
#if defined(RESIDENT) || defined(FLAGS)
#define LOAD_ALL EACH_EARLY(LOAD_ROW) LOAD_NORM AWAIT LOAD_X
#else
#define LOAD_ALL LOAD_X LOAD_NORM EACH_EARLY(LOAD_ROW)
#endif

#define BEGIN_ROWS \
    DECLARE_X \
    DECLARE_NORM \
    EACH_SUM(DECLARE_ROW) \
    uint loaded = FIRST_TILE(gl_WorkGroupID.x), block = BLOCK_OF(0u), filled = 0u, first_group = gl_WorkGroupID.x; \
    LOAD_ALL \
    PREFETCH(OWN_TILE) \
    PREPARE_END \
    PREPARE_CODES \
    if (gl_LocalInvocationIndex == 0u) zero = rows >> 31; \
    PREPARE_X

#ifdef ONE_TURN
#define EACH_GROUP for (uint group = gl_WorkGroupID.x, turn = 0u; turn < 1u; ++turn)
#define HAS_MORE_TILES false
#else
#define EACH_GROUP for (uint group = gl_WorkGroupID.x; group * TEAMS < TILE_COUNT; group += gl_NumWorkGroups.x)
#define HAS_MORE_TILES ((group + gl_NumWorkGroups.x) * TEAMS < TILE_COUNT)
#endif
#define OWN_TILE FIRST_TILE(first_group + OUT_SLOT * gl_NumWorkGroups.x)

#define FINISH_TILE \
    FOLD_SUMS \
    store_sum(sum_a, filled); \
    ++filled; \
    const bool last = !HAS_MORE_TILES; \
    if (filled < SLOTS && !last) continue; \
    barrier(); \
    const uint tile = OWN_TILE; \
    const bool has_row = OUT_SLOT < filled && tile * ROWS + OUT_ROW < rows; \
    first_group = group + gl_NumWorkGroups.x; \
    filled = 0u;

#ifdef ONE_BLOCK
#define BEGIN_TILES \
    BEGIN_ROWS \
    EACH_GROUP { \
        TAKE_X(block) \
        CLEAR_SURPLUS(0u) \
        EACH_SUM(CLEAR_ROW) \
        EACH_SUM(ADD_ROW) \
        FINISH_TILE
#else
// Where nothing comes next the last row is asked for again: a branch would part the loads from the products that hide
// them. (rows < 2^31)
#define BEGIN_TILES \
    BEGIN_ROWS \
    EACH_GROUP { \
        EACH_SUM(CLEAR_ROW) \
        for (uint chunk = 0u; chunk < CHUNKS; ++chunk) { \
            EACH_SECOND(LOAD_ROW) \
            STAGE_CHUNK(chunk) \
            ASKED \
            TAKE_X(block - STAGE_START(chunk)) \
            CLEAR_SURPLUS(chunk) \
            EACH_FIRST(ADD_ROW) \
            const bool last_chunk = chunk + 1u == CHUNKS; \
            const uint next_block = BLOCK_OF(last_chunk ? 0u : chunk + 1u); \
            loaded = last_chunk ? FIRST_TILE(group + gl_NumWorkGroups.x) : loaded; \
            const uint arrived = (0u EACH_FIRST(XOR_SUM) EACH_SECOND(XOR_WORD)) & (rows >> 31); \
            EACH_FIRST(LOAD_NEXT) \
            ASKED \
            after_sums = zero; \
            EACH_SECOND(ADD_ROW) \
            block = next_block; \
        } \
        FINISH_TILE
#endif
// where not all of x fits, a stage has whole chunks
#if (COLS + 31) / 32 <= STAGE_BLOCKS
#define STAGE_START(chunk) 0u
#define STAGE_CHUNK(chunk)
#else
#define STAGE_START(chunk) ((chunk) * LANES / STAGE_BLOCKS * STAGE_BLOCKS)
#define STAGE_CHUNK(chunk) if ((chunk) * LANES % STAGE_BLOCKS == 0u) { STAGE_X((chunk) * LANES / STAGE_BLOCKS) }
#endif
#define END_TILES \
        if (!last) { \
            barrier(); \
            PREFETCH(OWN_TILE) \
        } \
    }
