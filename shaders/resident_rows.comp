#version 460
// The row kernel of the persistent mode: any projection by a weight type, and what follows it. What the kernels of
// separate dispatches (matvec_groups, gate_up_groups, qkv_groups, head_groups) are told by defines are words of the
// record here, so that a joined kernel has the code of a product once. A row is a subgroup's. Where `parts` subgroups share
// one there, a subgroup does here what each of them does, one after another, which gives the same bits.
//
// A tile is `rows_a_tile` rows of each tensor, `sums` in all (2 or 4): neighbouring rows, rows of gate and up by turns, or
// pairs of dimensions. A lane has four blocks at hand: of four rows, or of the same two rows, c and d a chunk behind a and
// b (FLAG_DEEP) or in the next part (FLAG_PAIRED). All four are asked for before the barrier, and anew as they are used up:
// a warp waits for them together then, while others multiply. A turn has no branch, which would part loads from products.
// Tiles go round the workgroups first, then round a workgroup's subgroups (teams).
//
// Of the ops that it runs engine/program/resident_rows.py says: MOST_BLOCKS, blocks of 32 columns of the longest x;
// NORM_BLOCKS, of those that are RMS-normed, if any are; WIDE, if any has four sums, FLAG_DEEP or FLAG_PAIRED; the ends that
// there are (resident_ends.glsl).
#extension GL_EXT_shader_16bit_storage : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require
#extension GL_KHR_shader_subgroup_ballot : require
#include "binding.glsl"
#include "activation.glsl"
#include "order.glsl"
#include "state.glsl"
#include "step.glsl"
#include "weight_type.glsl"

layout(local_size_x = GROUP) in;

BUFFER(0, readonly, Quants, QUANT_ELEMENT, quants)
BUFFER(1, readonly, Scales, SCALE_ELEMENT, scales)
BUFFER(2, readonly, OddQuants, QUANT_ELEMENT, odd_quants)
BUFFER(3, readonly, OddScales, SCALE_ELEMENT, odd_scales)
BUFFER(4, readonly, X, vec4, x)
BUFFER(5, readonly, Norm, vec4, norm)
BUFFER(6, READWRITE, Y, float, y)
BUFFER(7, readonly, Bias, float, bias)
BUFFER(8, readonly, Table, vec2, table)
BUFFER(9, READWRITE, KCache, float16_t, k_cache)
BUFFER(10, READWRITE, VCache, float16_t, v_cache)
BUFFER(11, readonly, State, uint, state)
BUFFER(12, readonly, Step, uint, step_params)
BUFFER(13, writeonly, Scratch, uint, scratch)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(OddQuants, odd_quants)
    ADDRESS(OddScales, odd_scales)
    ADDRESS(X, x)
    ADDRESS(Norm, norm)
    ADDRESS(Y, y)
    ADDRESS(Bias, bias)
    ADDRESS(Table, table)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    ADDRESS(Step, step_params)
    ADDRESS(Scratch, scratch)
    uint end;
    uint rows;
    uint cols;
    uint rows_a_tile;
    uint sums;
    float inverse_width;
    float eps;
    uint heads;
    uint kv_heads;
    uint context;
    uint head_pairs;
    float inverse_head_pairs;
    uint rotated_pairs;
    uint padded;
    uint parts;
PUSH_END

// which tensor a row of a tile belongs to is known when compiled: that of odd ones is the same again but for gate and up
Quants even_quants;
Scales even_scales;
OddQuants uneven_quants;
OddScales uneven_scales;
#define QUANT(base, i) (base.side == 0u ? even_quants.data[i] : uneven_quants.data[i])
#define SCALE(base, i) (base.side == 0u ? SCALE_WORD(even_scales.data, i) : SCALE_WORD(uneven_scales.data, i))
#define SCALE_VECTOR(base, i) (base.side == 0u ? even_scales.data[i] : uneven_scales.data[i])
#include "dequant.glsl"

uint blocks;  // of 32 columns
#define QUADS (cols / 4u)
#define BLOCKS blocks
#define STAGED_BLOCKS MOST_BLOCKS
#define TEAMS (GROUP / SUBGROUP_SIZE)
#ifdef NORM_BLOCKS
#define NORM
#define SQUARE_BLOCKS NORM_BLOCKS
#define NORM_TURNS ((NORM_BLOCKS * 4 + GROUP - 1) / GROUP)
#endif
#define TURNS ((MOST_BLOCKS * 4 + GROUP - 1) / GROUP)
#include "block_products.glsl"
#include "block_x.glsl"
#include "halve.glsl"

// ---- rows of a tile ----
#if defined(WIDE) && !defined(PLAIN)  // whose blocks take too many registers
#define SUMS 4
#else
#define SUMS 2
#endif
#define SUM_LANES (SUBGROUP_SIZE / SUMS)
#include "resident_ends.glsl"
#include "resident_x.glsl"

// of a, b, c and d in a tile
uvec4 tile_rows(uint tile) {
    const uint odd = sums != rows_a_tile ? 0u : 1u, second = sums == 4u ? rows_a_tile / 2u : 0u;
    uvec4 found = min(tile * rows_a_tile + uvec4(0u, odd, second, odd + second), uvec4(rows - 1u));
#ifdef END_QKV
    if ((end & ROW_END_MASK) == ROW_END_QKV) found = uvec4(pair_rows(found.x), pair_rows(found.z));
#endif
    return found;
}

Packed no_block() {
    Packed p;
    p.u0 = QUANT_ELEMENT(0u);
#if UNITS > 1
    p.u1 = QUANT_ELEMENT(0u);
#endif
#if UNITS > 2
    p.u2 = p.u3 = QUANT_ELEMENT(0u);
#endif
#if UNITS > 4
    p.u4 = p.u5 = p.u6 = p.u7 = QUANT_ELEMENT(0u);
#endif
    p.high = uvec2(0u);
    p.scales = uvec4(0u);
    return p;
}

#define LOAD(name, row, side, block) packed_##name = load_packed(row_base(row, blocks, side), block);
#define ADD(name) sum_##name = BLOCK_SUM(sum_##name, packed_##name);
#if SUMS == 4
#define FOLD_SUMS \
    sum_a = halve(sum_a, sum_c, SUBGROUP_SIZE / 2u); \
    sum_b = halve(sum_b, sum_d, SUBGROUP_SIZE / 2u); \
    sum_a = halve(sum_a, sum_b, SUBGROUP_SIZE / 4u);
#else
#define FOLD_SUMS sum_a = halve(sum_a, sum_b, SUBGROUP_SIZE / 2u);
#endif

void kernel() {
    const uint lane = gl_LocalInvocationIndex % SUBGROUP_SIZE, kind = end & ROW_END_MASK;
    const uint stride = gl_NumWorkGroups.x * TEAMS, tiles = (rows + rows_a_tile - 1u) / rows_a_tile;
    even_quants = Quants(BUFFER_ADDRESS(quants));
    even_scales = Scales(BUFFER_ADDRESS(scales));
    uneven_quants = OddQuants(BUFFER_ADDRESS(odd_quants));
    uneven_scales = OddScales(BUFFER_ADDRESS(odd_scales));
    blocks = (cols + 31u) / 32u;
    uint tile = subgroupBroadcastFirst(gl_WorkGroupID.x + gl_LocalInvocationIndex / SUBGROUP_SIZE * gl_NumWorkGroups.x);
    uvec4 row = tile_rows(tile);  // of a and b those that are next
    uint block = min(lane, blocks - 1u);
    // all that is not set on each path is set here: otherwise its old value would take registers in all other kernels
    Packed packed_a = no_block(), packed_b = no_block();
#if SUMS == 4
    Packed packed_c = no_block(), packed_d = no_block();
    const bool deep = (end & FLAG_DEEP) != 0u, paired = (end & FLAG_PAIRED) != 0u;
    const uint step = parts * SUBGROUP_SIZE * (deep ? 2u : 1u), parts_at_once = paired ? 2u : 1u;
    const uint behind = deep ? parts * SUBGROUP_SIZE : paired ? SUBGROUP_SIZE : 0u;
#else
    const uint step = parts * SUBGROUP_SIZE, parts_at_once = 1u;
#endif
    if (tile < tiles) {
        LOAD(a, row.x, 0u, block)
        LOAD(b, row.y, 1u, block)
#if SUMS == 4
        const uint second_block = min(behind + lane, blocks - 1u);
        LOAD(c, row.z, 0u, second_block)
        LOAD(d, row.w, 1u, second_block)
#endif
    }
#ifdef CODEBOOK
    fill_code_bytes();  // a barrier follows
#endif
#ifdef END_HEAD
    best_key = 0u;
    best_id = NO_ID;
    penalty = 1.0;
    keep_keys = false;
    if (kind == ROW_END_HEAD) begin_head();
#endif
    early = offset = vec2(0.0);
#ifdef END_QKV
    position = done = 0u;
    if (kind == ROW_END_QKV) {  // of this token, in all layers: others have waited for it before
        position = state.data[STATE_POSITION];
        done = state.data[STATE_DONE];
    }
#endif
    make_x_ready(tile);
    DECLARE_X
    for (; tile < tiles; tile += stride) {
        const uint next_tile = tile + stride, i = lane / SUM_LANES, own = tile * rows_a_tile + i;
        const uvec4 next_row = tile_rows(next_tile < tiles ? next_tile : tile);
        float total = 0.0;
        [[dont_unroll]] for (uint part = 0u; part < parts; part += parts_at_once) {
            uint next_part = part + parts_at_once;
            if (next_part >= parts || next_part * SUBGROUP_SIZE >= blocks) next_part = 0u;
            float sum_a = 0.0, sum_b = 0.0;
#if SUMS == 4
            float sum_c = 0.0, sum_d = 0.0;
#endif
            for (uint from = part * SUBGROUP_SIZE; from < blocks; from += step) {
                TAKE_X(block)
                if (from + lane >= blocks) { CLEAR_X }
#if SUMS == 4
                const uint second = from + behind + lane, second_block = min(second, blocks - 1u);
#endif
                // where nothing is next, what is at hand is asked for again
                const bool ends = from + step >= blocks;
                const uint next_block = min((ends ? next_part * SUBGROUP_SIZE : from + step) + lane, blocks - 1u);
                row.xy = ends && next_part == 0u ? next_row.xy : row.xy;
                ADD(a)
                ADD(b)
                LOAD(a, row.x, 0u, next_block)
                LOAD(b, row.y, 1u, next_block)
#if SUMS == 4
                block = second_block;
                TAKE_X(block)
                if (second >= blocks) { CLEAR_X }
                sum_c = deep ? sum_a : sum_c;
                sum_d = deep ? sum_b : sum_d;
                ADD(c)
                ADD(d)
                sum_a = deep ? sum_c : sum_a;
                sum_b = deep ? sum_d : sum_b;
                const uint next_second = min((ends ? next_part * SUBGROUP_SIZE : from + step) + behind + lane, blocks - 1u);
                const uvec2 next_cd = ends && next_part == 0u ? next_row.zw : row.zw;
                LOAD(c, next_cd.x, 0u, next_second)
                LOAD(d, next_cd.y, 1u, next_second)
#endif
                block = next_block;
            }
            FOLD_SUMS
            [[unroll]] for (uint m = SUM_LANES / 2u; m > 0u; m /= 2u) sum_a += subgroupShuffleXor(sum_a, m);
            total = part == 0u ? sum_a : total + sum_a;
#if SUMS == 4
            const float next_sum = subgroupShuffleXor(sum_a, SUBGROUP_SIZE / 2u);
            if (paired && part + 1u < parts) total += next_sum;
#endif
        }
        const float other = subgroupShuffleXor(total, SUM_LANES);  // of the pair's other row
        if (lane % SUM_LANES == 0u && i < sums) switch (kind) {
#if defined(END_GATE) || defined(END_GATE_GELU)
        case ROW_END_GATE:
        case ROW_END_GATE_GELU: {
            const uint gated = tile * rows_a_tile + i / 2u;
            if (i % 2u == 0u && gated < rows) y.data[gated] = activated(total, kind) * other;
            break;
        }
#endif
#ifdef END_QKV
        case ROW_END_QKV: {
            vec2 value = vec2(total, other);
#ifdef END_BIAS
            if ((end & FLAG_ADDS_BIAS) != 0u) value += offset;
#endif
            if (i % 2u == 0u && own < rows && done == 0u) store_pair(value, own / 2u, early, position);
            break;
        }
#endif
#ifdef END_HEAD
        case ROW_END_HEAD:
            if (own < rows) end_head_row(own, total);
            break;
#endif
        default:
            if (own < rows) y.data[own] = kind == ROW_END_STORE ? total : early.x + total;
        }
        row = next_row;
        load_early(next_tile);
    }
#ifdef END_HEAD
    if (kind == ROW_END_HEAD) {
        const uint part = gl_WorkGroupID.x * TEAMS + gl_LocalInvocationIndex / SUBGROUP_SIZE;
        end_head(part, gl_NumWorkGroups.x * TEAMS, lane);
    }
#endif
}

#include "main.glsl"
