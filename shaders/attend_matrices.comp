#version 460
// Decode attention by cooperative matrices (float16 in, float32 sums), where query heads share keys and many tokens are
// seen. A workgroup of LANES does HEADS of the SHARED heads of a KV head, for every gl_NumWorkGroups.x-th token range of SPLIT;
// ranges are numbered from the first one that is seen. Keys and values pass through shared memory, 64 dimensions at a time:
//
//   S (tokens, columns) = K Q^T, each subgroup its own MATRIX_M tokens
//   O^T (dimensions, columns) = V^T P, a subgroup MATRIX_M dimensions of a pass and one of SHARES parts of the tokens
//
// with two columns a head: what float16 holds of a query or a weight, and the rest of it, together 22 bits. A column's
// sums depend on no other, so a head's arithmetic depends neither on the other heads nor on how ranges are shared out.
// Results go where attend_groups.comp says. With ONE_RANGE a workgroup has one range at most: without the loop and its loads
// the code is a fifth shorter, and NVIDIA's compiler copies no registers.
//
// MATRIX_M, MATRIX_N, MATRIX_K are as the device has them; engine/program/attend_matrices.py says which fit.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#extension GL_EXT_control_flow_attributes : require
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"
#include "subgroup.glsl"
#include "float16.glsl"

layout(local_size_x = LANES) in;

BUFFER(0, AWAITED, Q, vec4, q)
BUFFER(1, AWAITED, KCache, uvec4, k_cache)
BUFFER(2, AWAITED, VCache, uvec4, v_cache)
BUFFER(3, readonly, State, uint, state)
BUFFER(4, COHERENT, Out, vec4, result)
BUFFER(5, COHERENT, Sums, vec2, sums)
BUFFER(6, writeonly, Merged, float, merged)
BUFFER(7, READWRITE, Arrivals, uint, arrivals)
BUFFER(8, readonly, Gate, float, gate)
PUSH_BEGIN
    ADDRESS(Q, q)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    ADDRESS(Out, result)
    ADDRESS(Sums, sums)
    ADDRESS(Merged, merged)
    ADDRESS(Arrivals, arrivals)
    ADDRESS(Gate, gate)
    uint heads;
    uint kv_heads;
    uint context;
    float scale;
    uint window;
PUSH_END

#define OWN_AWAIT
#define AWAITS_ALWAYS
#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define HEAD_VECTORS (HEAD_DIM / 4u)
#define HEAD_UNITS (HEAD_DIM / 8u)  // of 16 bytes in float16
#define PASS_UNITS 8u
#define PASS_DIMS 64u
#define PASSES ((HEAD_UNITS + PASS_UNITS - 1u) / PASS_UNITS)
#define SLOTS (SUBGROUP_SIZE / PASS_UNITS)  // tokens of a subgroup that it loads at once
#define STEPS (MATRIX_M / SLOTS)
#define BLOCKS (PASS_DIMS / MATRIX_M)  // of a pass's dimensions
#define SHARES (SUBGROUPS / BLOCKS)
#define SHARE_TOKENS (SPLIT / SHARES)
#define HEADS_A_TURN (SUBGROUP_SIZE / MATRIX_M)  // whose scores the lanes of a subgroup have, one a lane
#define TURNS ((HEADS + HEADS_A_TURN - 1u) / HEADS_A_TURN)
// Rows in shared memory have 16 bytes more than they need, so that they start in different banks.
#define PITCH (PASS_UNITS + 1u)
#define QUERY_PITCH (HEAD_UNITS + 1u)
#define QUERY_TURNS ((HEAD_VECTORS + SUBGROUP_SIZE - 1u) / SUBGROUP_SIZE)
#define WEIGHT_PITCH (SPLIT / 8u + 1u)
#define SUM_PITCH (PASSES * PASS_DIMS / 4u + 1u)
#define LOWEST -3.0e38
#if MATRIX_M * MATRIX_N <= 64  // a software device, whose compiler takes long
#define MATRIX_LOOP [[dont_unroll]]
#else
#define MATRIX_LOOP [[unroll]]
#endif
// What numbers are multiplied by on their way to float16, which has fewer bits for what is below 2^-14: weights, and what
// is left of a query.
#define WEIGHT_SCALE 16384.0
#define REST_SCALE 2048.0

shared uvec4 tile[SPLIT * PITCH];  // keys of a pass, each subgroup's scores, values of a pass, sums: one after the other
shared uvec4 queries[MATRIX_N * QUERY_PITCH];  // a column a row
shared uvec4 weights[MATRIX_N * WEIGHT_PITCH];
shared float factors[HEADS];  // scale, over what a head's query was multiplied by
shared float range_tops[HEADS];
shared vec4 tops[HEADS * SUBGROUPS / 4u], totals[HEADS * SUBGROUPS / 4u];

#ifdef MERGE
#include "attend_join.glsl"
#endif

#include "attend_queries.glsl"

void share_tile() {
    subgroupMemoryBarrierShared();
    subgroupBarrier();
}

float highest(uint h) {  // score of all subgroups
    vec4 top = tops[h * (SUBGROUPS / 4u)];
    [[unroll]] for (uint four = 1u; four < SUBGROUPS / 4u; ++four) top = max(top, tops[h * (SUBGROUPS / 4u) + four]);
    return max(max(top.x, top.y), max(top.z, top.w));
}

// Adds up what the shares of the tokens have come to.
void finish_range(uint range, uint splits, uint first_head, uint count) {
    [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < count * HEAD_DIM; item += LANES) {
        const uint h = item / HEAD_DIM, dim = item % HEAD_DIM;
        float value = 0.0, rest = 0.0, total = 0.0;
        [[unroll]] for (uint share = 0u; share < SHARES; ++share) {
            const uint at = (share * MATRIX_N + h) * SUM_PITCH + dim / 4u;
            value += uintBitsToFloat(tile[at][dim % 4u]);
            rest += uintBitsToFloat(tile[at + HEADS * SUM_PITCH][dim % 4u]);
        }
        [[unroll]] for (uint four = 0u; four < SUBGROUPS / 4u; ++four) {
            const vec4 sum = totals[h * (SUBGROUPS / 4u) + four];
            total += (sum.x + sum.y) + (sum.z + sum.w);
        }
        precise const float whole = (value + rest) * (1.0 / WEIGHT_SCALE);
        const uint place = first_head * HEAD_DIM + item;
#ifdef MERGE
        if (splits == 1u) {  // what joining a single range gives, to the bit
            write_merged(place, whole, total);
            continue;
        }
#endif
        result.data[range * heads * HEAD_VECTORS + place / 4u][item % 4u] = whole;
        if (dim == 0u) sums.data[range * heads + first_head + h] = vec2(range_tops[h], total);
    }
}

#define UNIT_OF(p) min((p) * PASS_UNITS + unit, HEAD_UNITS - 1u)
#define STEP_ROW(s) (lane_row + loaded + (s) * SLOTS)
// A lane's keys or values of the range at token `loaded`, rows `oldest_row` to `newest` of the cache; what stands for others
// has no weight.
#define LOAD_STEPS(values, cache, newest) \
    if (loaded_range < splits) { \
        [[unroll]] for (uint s = 0u; s < STEPS; ++s) { \
            const uint row = min(max(STEP_ROW(s), oldest_row), newest); \
            [[unroll]] for (uint p = 0u; p < PASSES; ++p) values[p * STEPS + s] = cache.data[row * HEAD_UNITS + UNIT_OF(p)]; \
        } \
    }
#define PUT_STEPS(values, p) \
    [[unroll]] for (uint s = 0u; s < STEPS; ++s) tile[(subgroup_token + s * SLOTS + slot) * PITCH + unit] = values[(p) * STEPS + s];
// This token's, by the lanes that had its row in PUT_STEPS, where that was loaded before it was there.
#if !defined(RESIDENT) && !defined(FLAGS)
#define PUT_NEWEST(values, cache, p)
#elif defined(ONE_RANGE)
#define PUT_NEWEST(values, cache, p) if (has_newest) tile[position % SPLIT * PITCH + unit] = values[p];
#else  // rarely among a workgroup's first range: no registers for it
#define PUT_NEWEST(values, cache, p) \
    if (has_newest && range == gl_WorkGroupID.x) tile[position % SPLIT * PITCH + unit] = cache.data[newest_row * HEAD_UNITS + UNIT_OF(p)];
#endif
#ifdef ONE_RANGE
#define LOAD_NEXT_KEYS
#define LOAD_NEXT_VALUES
#else
#define LOAD_NEXT_KEYS \
        loaded_range = range + gl_NumWorkGroups.x; \
        loaded = (first_split + loaded_range) * SPLIT; \
        LOAD_STEPS(ks, k_cache, newest_row)
#define LOAD_NEXT_VALUES LOAD_STEPS(vs, v_cache, newest_row)
#endif
#define SUMS coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>
// Passes have constant bounds each: NVIDIA's compiler unrolls no loops whose bounds come from an outer one.
#define KEY_PASS(p) { \
        MATRIX_LOOP for (uint k = 0u; k < min(PASS_DIMS, HEAD_DIM - (p) * PASS_DIMS); k += MATRIX_K) { \
            coopmat<float16_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> keys; \
            coopmat<float16_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> query; \
            coopMatLoad(keys, tile, subgroup_token * PITCH + k / 8u, PITCH, gl_CooperativeMatrixLayoutRowMajor); \
            coopMatLoad(query, queries, (p) * PASS_UNITS + k / 8u, QUERY_PITCH, gl_CooperativeMatrixLayoutColumnMajor); \
            dots = coopMatMulAdd(keys, query, dots); \
        } \
        share_tile(); \
    }
#define VALUE_PASS(p, sum) \
    if ((p) * PASS_DIMS + block * MATRIX_M < HEAD_DIM) { \
        MATRIX_LOOP for (uint k = 0u; k < SHARE_TOKENS; k += MATRIX_K) { \
            coopmat<float16_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> values; \
            coopmat<float16_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> weight; \
            coopMatLoad(values, tile, (share_token + k) * PITCH + block * (MATRIX_M / 8u), PITCH, gl_CooperativeMatrixLayoutColumnMajor); \
            coopMatLoad(weight, weights, (share_token + k) / 8u, WEIGHT_PITCH, gl_CooperativeMatrixLayoutColumnMajor); \
            sum = coopMatMulAdd(values, weight, sum); \
        } \
    }
#define PUT_SUMS(p, sum) { \
        const uint at = share * MATRIX_N * SUM_PITCH + ((p) * PASS_DIMS + block * MATRIX_M) / 4u; \
        coopMatStore(sum, tile, at, SUM_PITCH, gl_CooperativeMatrixLayoutColumnMajor); \
    }

void kernel() {
    const uint t = gl_LocalInvocationIndex, subgroup = t / SUBGROUP_SIZE, lane = t % SUBGROUP_SIZE;
    const uint unit = lane % PASS_UNITS, slot = lane / PASS_UNITS;
    const uint position = state.data[STATE_POSITION];
    const uint seen = first_seen(position, window), first_split = seen / SPLIT, splits = position / SPLIT - first_split + 1u;
    const uint sharers = (SHARED + HEADS - 1u) / HEADS;  // workgroups of a KV head
    const uint kv_head = gl_WorkGroupID.y / sharers, of_sharer = (gl_WorkGroupID.y - kv_head * sharers) * HEADS;
    const uint first_head = kv_head * SHARED + of_sharer, head_count = min(HEADS, SHARED - of_sharer);
    const uint base_row = kv_head * context, oldest_row = base_row + seen, newest_row = base_row + position;
    const uint subgroup_token = subgroup * MATRIX_M, lane_row = base_row + subgroup_token + slot;
    const uint token = lane % MATRIX_M, own_head = lane / MATRIX_M;  // of a lane's scores
    const uint block = subgroup % BLOCKS, share = subgroup / BLOCKS, share_token = share * SHARE_TOKENS;
    uvec4 ks[PASSES * STEPS], vs[PASSES * STEPS];
    uint range = gl_WorkGroupID.x, loaded_range = range, loaded = (first_split + range) * SPLIT;
#if defined(RESIDENT) || defined(FLAGS)  // this token's keys and values are awaited, all others are loaded meanwhile
    const uint old_row = newest_row - min(position - seen, 1u);
    if (seen == position) { AWAIT }  // there are no others
    LOAD_STEPS(ks, k_cache, old_row)
    LOAD_STEPS(vs, v_cache, old_row)
    AWAIT
    if (range >= splits) return;
#else
    if (range >= splits) return;
    LOAD_STEPS(ks, k_cache, newest_row)
    LOAD_STEPS(vs, v_cache, newest_row)
#endif
    vec4 query[QUERY_TURNS];
    if (subgroup < HEADS) {
        [[unroll]] for (uint turn = 0u; turn < QUERY_TURNS; ++turn) {
            const uint vector = min(turn * SUBGROUP_SIZE + lane, HEAD_VECTORS - 1u);
            query[turn] = q.data[min(first_head + subgroup, heads - 1u) * HEAD_VECTORS + vector];
        }
    }
#if defined(RESIDENT) || defined(FLAGS)
    const bool has_newest = range == splits - 1u && position % SPLIT / MATRIX_M == subgroup && position % SLOTS == slot;
#ifdef ONE_RANGE
    uvec4 newest_k[PASSES], newest_v[PASSES];
    if (has_newest) {
        [[unroll]] for (uint p = 0u; p < PASSES; ++p) {
            newest_k[p] = k_cache.data[newest_row * HEAD_UNITS + UNIT_OF(p)];
            newest_v[p] = v_cache.data[newest_row * HEAD_UNITS + UNIT_OF(p)];
        }
    }
    subgroupBarrier();  // else that compiler asks for them behind the wait for all others
#endif
#endif
    PUT_STEPS(ks, 0u)
    PUT_NEWEST(newest_k, k_cache, 0u)
    put_queries(query);
#ifndef ONE_RANGE
    [[dont_unroll]] for (;;)
#endif
    {
        barrier();
        SUMS dots = SUMS(0.0);
        KEY_PASS(0u)
#if HEAD_DIM > 64
        PUT_STEPS(ks, 1u)
        PUT_NEWEST(newest_k, k_cache, 1u)
        share_tile();
        KEY_PASS(1u)
#endif
        LOAD_NEXT_KEYS
        coopMatStore(dots, tile, subgroup_token * PITCH, MATRIX_N / 4u, gl_CooperativeMatrixLayoutRowMajor);
        share_tile();
        const uint own_token = (first_split + range) * SPLIT + subgroup_token + token;
        const bool unseen = own_token < seen || own_token > position;
        float scores[TURNS], turn_tops[TURNS];
        [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
            const uint h = turn * HEADS_A_TURN + own_head, at = token * MATRIX_N + min(h, HEADS - 1u), rest = at + HEADS;
            const float upper = uintBitsToFloat(tile[subgroup_token * PITCH + at / 4u][at % 4u]);
            const float lower = uintBitsToFloat(tile[subgroup_token * PITCH + rest / 4u][rest % 4u]);
            precise const float score = fma(lower, 1.0 / REST_SCALE, upper) * factors[min(h, HEADS - 1u)];
            scores[turn] = unseen ? LOWEST : score;
            turn_tops[turn] = scores[turn];
        }
        // the turns' shuffles side by side: each waits for the one before
        [[unroll]] for (uint m = 1u; m < MATRIX_M; m *= 2u) {
            [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) turn_tops[turn] = max(turn_tops[turn], subgroupShuffleXor(turn_tops[turn], m));
        }
        [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
            const uint h = turn * HEADS_A_TURN + own_head;
            if (token == 0u && h < HEADS) tops[h * (SUBGROUPS / 4u) + subgroup / 4u][subgroup % 4u] = turn_tops[turn];
        }
        share_tile();
        PUT_STEPS(vs, 0u)
        PUT_NEWEST(newest_v, v_cache, 0u)
        barrier();
        // Of two lanes one writes both weights' upper parts, the other the rests.
        const bool odd = (lane & 1u) != 0u;
        float turn_totals[TURNS];
        uint pairs[TURNS];
        [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
            turn_tops[turn] = highest(min(turn * HEADS_A_TURN + own_head, HEADS - 1u));
            const float weight = unseen ? 0.0 : exp(scores[turn] - turn_tops[turn]);
            const float scaled = weight * WEIGHT_SCALE, upper = upper_part(vec4(scaled)).x, rest = scaled - upper;
            const float got = subgroupShuffleXor(odd ? upper : rest, 1u);
            pairs[turn] = packFloat2x16(odd ? f16vec2(got, rest) : f16vec2(upper, got));
            turn_totals[turn] = weight;
        }
        [[unroll]] for (uint m = 1u; m < MATRIX_M; m *= 2u) {
            [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) turn_totals[turn] += subgroupShuffleXor(turn_totals[turn], m);
        }
        [[unroll]] for (uint turn = 0u; turn < TURNS; ++turn) {
            const uint h = turn * HEADS_A_TURN + own_head;
            if (h < HEADS) {
                const uint column = odd ? HEADS + h : h, at = (subgroup_token + token) / 2u;
                weights[column * WEIGHT_PITCH + at / 4u][at % 4u] = pairs[turn];
                if (token == 0u) {
                    totals[h * (SUBGROUPS / 4u) + subgroup / 4u][subgroup % 4u] = turn_totals[turn];
                    if (subgroup == 0u) range_tops[h] = turn_tops[turn];
                }
            }
        }
        barrier();
        SUMS sums0 = SUMS(0.0);
        VALUE_PASS(0u, sums0)
        barrier();
#if HEAD_DIM > 64
        PUT_STEPS(vs, 1u)
        PUT_NEWEST(newest_v, v_cache, 1u)
        LOAD_NEXT_VALUES
        barrier();
        SUMS sums1 = SUMS(0.0);
        VALUE_PASS(1u, sums1)
        barrier();
        PUT_SUMS(1u, sums1)
#else
        LOAD_NEXT_VALUES
#endif
        PUT_SUMS(0u, sums0)
        barrier();
        finish_range(range, splits, first_head, head_count);
#ifndef ONE_RANGE
        range = loaded_range;
        if (range >= splits) break;
        barrier();  // the sums have been read
        PUT_STEPS(ks, 0u)
#endif
    }
#ifdef MERGE
    if (splits > 1u) join_last(first_head, head_count, splits);
#endif
}

#include "main.glsl"
