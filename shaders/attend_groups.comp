#version 460
// Decode attention for GPUs. A workgroup of LANES does HEADS of the query heads that share a KV head, for every
// gl_NumWorkGroups.x-th token range of SPLIT; ranges are numbered from the first one that is seen. Of a range each subgroup
// has neighbouring tokens, whose keys and values are loaded once for all heads and whose weights are its own affair:
// subgroups meet only where a range's results are added up. LANES_A_TOKEN lanes share a token, eight dimensions a load
// each. A head's arithmetic depends neither on the other heads nor on how ranges are shared out. The unnormalised results
// of a range go to partials, unless MERGE finds it the only one; with MERGE the last of a head's workgroups to arrive joins
// the ranges as attend_merge.comp does.
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"
#include "subgroup.glsl"
#extension GL_EXT_control_flow_attributes : require

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
#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define HEAD_VECTORS (HEAD_DIM / 4u)
#define HEAD_UNITS (HEAD_DIM / 8u)  // 16-byte units of a key
#define UNITS_A_LANE ((HEAD_UNITS + LANES_A_TOKEN - 1u) / LANES_A_TOKEN)
#define STEPS (SPLIT * LANES_A_TOKEN / LANES)  // tokens of a lane in a range: 8 or 4, at most LANES_A_TOKEN
#define SLOTS (SUBGROUP_SIZE / LANES_A_TOKEN)  // tokens of a subgroup in a step
#define TOKENS_A_SUBGROUP (STEPS * SLOTS)
#define LANES_A_WEIGHT (LANES_A_TOKEN / STEPS)
#define LOADS (STEPS * UNITS_A_LANE)
#define KEPT (8 / SLOTS)  // of a unit's eight dimensions, what a lane has once the slots are added up
#define EARLY_VALUES (HEADS > 2 ? 4u : STEPS)  // steps whose values are asked for with the keys: else registers run out
#define LOWEST -3.0e38

shared vec4 weights[SUBGROUPS * HEADS * TOKENS_A_SUBGROUP / 4];  // by subgroup, slot, head and step
shared float tops[HEADS * SUBGROUPS], totals[HEADS * SUBGROUPS];
shared vec4 parts[SUBGROUPS * HEADS_AT_ONCE * HEAD_VECTORS];  // each subgroup's results for a range

#ifdef MERGE
shared uint arrived;
#include "attend_join.glsl"
#endif

// Adds up what the subgroups have of the `count` heads from `base` on.
void finish_range(uint range, uint splits, uint first_head, uint base, uint count) {
    [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < count * HEAD_DIM / 2u; item += LANES) {
        const uint part = item * 2u / HEAD_DIM, h = base + part, dim = item * 2u % HEAD_DIM;
        float top = tops[h * SUBGROUPS];
        [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) top = max(top, tops[h * SUBGROUPS + g]);
        vec2 value = vec2(0.0);
        float total = 0.0;
        [[unroll]] for (uint g = 0u; g < SUBGROUPS; ++g) {
            const float own = tops[h * SUBGROUPS + g], factor = own == LOWEST ? 0.0 : exp(own - top);
            const vec4 sum = parts[(g * HEADS_AT_ONCE + part) * HEAD_VECTORS + dim / 4u];
            value = fma(vec2(factor), dim % 4u == 0u ? sum.xy : sum.zw, value);
            total = fma(factor, totals[h * SUBGROUPS + g], total);
        }
        const uint place = (first_head + h) * HEAD_DIM + dim;
#ifdef MERGE
        if (splits == 1u) {  // what joining a single range gives, to the bit
            write_merged(place, value.x, total);
            write_merged(place + 1u, value.y, total);
            continue;
        }
#endif
        const uint vector = range * heads * HEAD_VECTORS + place / 4u;
        result.data[vector][place % 4u] = value.x;
        result.data[vector][place % 4u + 1u] = value.y;
        if (dim == 0u) sums.data[range * heads + first_head + h] = vec2(top, total);
    }
}

void unpack8(uvec4 raw, out float values[8]) {
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        const vec2 two = unpackHalf2x16(raw[i]);
        values[2u * i] = two.x;
        values[2u * i + 1u] = two.y;
    }
}

// A lane's keys or values of a range, up to row `newest` of the cache. Where this token's key and value are awaited, all
// others were there before and are loaded meanwhile.
#define LOAD_STEPS(first, count, values, cache, range, newest, wanted) \
    [[unroll]] for (uint step = first; step < first + (count); ++step) { \
        const uint row = clamp(first_row + (range) * SPLIT + step * SLOTS, oldest_row, newest); \
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) { \
            const uint unit = min(c * LANES_A_TOKEN + lane, HEAD_UNITS - 1u); \
            if (wanted) values[step * UNITS_A_LANE + c] = cache.data[row * HEAD_UNITS + unit]; \
        } \
    }
// Half of a token's lanes give their dot products of `kept` steps to the others, and get as many others.
#define ADD_HALVES(m, kept) { \
        const bool upper = (t & (m)) != 0u; \
        [[unroll]] for (uint i = 0u; i < kept * HEADS; ++i) { \
            const float own = upper ? dots[kept * HEADS + i] : dots[i], given = upper ? dots[i] : dots[kept * HEADS + i]; \
            dots[i] = own + subgroupShuffleXor(given, m); \
        } \
    }
// Half of the slots give `kept` dimensions of each unit to the others, and get as many others.
#define ADD_SLOTS(m, kept) { \
        const bool upper = (t & (m)) != 0u; \
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) total[h] += subgroupShuffleXor(total[h], m); \
        [[unroll]] for (uint unit = 0u; unit < HEADS * UNITS_A_LANE; ++unit) { \
            [[unroll]] for (uint i = 0u; i < kept; ++i) { \
                const float own = upper ? sums_of[unit * 8u + i + kept] : sums_of[unit * 8u + i]; \
                const float given = upper ? sums_of[unit * 8u + i] : sums_of[unit * 8u + i + kept]; \
                sums_of[unit * 8u + i] = own + subgroupShuffleXor(given, m); \
            } \
        } \
    }
// Whether this subgroup has tokens of a range that are seen.
#define SEES(range) (subgroup_token + (range) * SPLIT <= position \
    && subgroup_token + (range) * SPLIT + TOKENS_A_SUBGROUP > seen)

void kernel() {
    const uint t = gl_LocalInvocationIndex, lane = t % LANES_A_TOKEN, subgroup = t / SUBGROUP_SIZE;
    const uint slot = t % SUBGROUP_SIZE / LANES_A_TOKEN;
    const uint position = state.data[STATE_POSITION];
    const uint seen = first_seen(position, window), first_split = seen / SPLIT, splits = position / SPLIT - first_split + 1u;
    uint range = gl_WorkGroupID.x;
    if (range >= splits) return;
    const uint shared_by = heads / kv_heads, sharers = (shared_by + HEADS - 1u) / HEADS;  // heads, and workgroups, of a KV head
    const uint kv_head = gl_WorkGroupID.y / sharers, of_sharer = (gl_WorkGroupID.y - kv_head * sharers) * HEADS;
    const uint first_head = kv_head * shared_by + of_sharer, head_count = min(HEADS, shared_by - of_sharer);
    const uint subgroup_token = first_split * SPLIT + subgroup * TOKENS_A_SUBGROUP;
    const uint base_row = kv_head * context, oldest_row = base_row + seen, newest_row = base_row + position;
    const uint first_row = base_row + subgroup_token + slot;
    const uint own_step = lane / LANES_A_WEIGHT;  // of the token whose scores this lane ends up with
    const uint weights_at = (subgroup * SLOTS + slot) * HEADS * STEPS;
    uvec4 ks[LOADS], vs[LOADS];
    const bool sees_first = SEES(range);
#if defined(RESIDENT) || defined(FLAGS)
    const uint old_row = max(newest_row, oldest_row + 1u) - 1u;
    if (sees_first) {
        LOAD_STEPS(0u, STEPS, ks, k_cache, range, old_row, true)
        LOAD_STEPS(0u, EARLY_VALUES, vs, v_cache, range, old_row, true)
    }
    AWAIT
    if (sees_first) {
        LOAD_STEPS(0u, STEPS, ks, k_cache, range, newest_row, row == newest_row)
        LOAD_STEPS(0u, EARLY_VALUES, vs, v_cache, range, newest_row, row == newest_row)
    }
#else
    if (sees_first) {
        LOAD_STEPS(0u, STEPS, ks, k_cache, range, newest_row, true)
        LOAD_STEPS(0u, EARLY_VALUES, vs, v_cache, range, newest_row, true)
    }
#endif
    [[dont_unroll]] for (; range < splits; range += gl_NumWorkGroups.x) {
        const uint next = range + gl_NumWorkGroups.x;
        const bool sees = SEES(range);
        float top[HEADS], total[HEADS], sums_of[HEADS * UNITS_A_LANE * 8u];
        [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
            top[h] = LOWEST;
            total[h] = 0.0;
            [[unroll]] for (uint i = 0u; i < UNITS_A_LANE * 8u; ++i) sums_of[h * UNITS_A_LANE * 8u + i] = 0.0;
        }
        if (sees) {
            vec4 queries[HEADS * UNITS_A_LANE * 2u];  // not kept, to leave registers to what is under way
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
                    const uint unit = c * LANES_A_TOKEN + lane;
                    const uint at = (min(first_head + h, heads - 1u) * HEAD_UNITS + min(unit, HEAD_UNITS - 1u)) * 2u;
                    [[unroll]] for (uint half_unit = 0u; half_unit < 2u; ++half_unit)
                        queries[(h * UNITS_A_LANE + c) * 2u + half_unit] = unit < HEAD_UNITS ? q.data[at + half_unit] : vec4(0.0);
                }
            }
            float dots[STEPS * HEADS];
            [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
                if (s == EARLY_VALUES) LOAD_STEPS(EARLY_VALUES, STEPS - EARLY_VALUES, vs, v_cache, range, newest_row, true)
                [[unroll]] for (uint h = 0u; h < HEADS; ++h) dots[s * HEADS + h] = 0.0;
                [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
                    float key[8];
                    unpack8(ks[s * UNITS_A_LANE + c], key);
                    [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                        [[unroll]] for (uint i = 0u; i < 8u; ++i)
                            dots[s * HEADS + h] = fma(queries[(h * UNITS_A_LANE + c) * 2u + i / 4u][i % 4u], key[i], dots[s * HEADS + h]);
                    }
                }
            }
            // A token's lanes add up their dot products by halves: each ends with the sums of one step.
#if STEPS == 8
            ADD_HALVES(LANES_A_TOKEN / 2u, 4u)
            ADD_HALVES(LANES_A_TOKEN / 4u, 2u)
            ADD_HALVES(LANES_A_TOKEN / 8u, 1u)
#else
            ADD_HALVES(LANES_A_TOKEN / 2u, 2u)
            ADD_HALVES(LANES_A_TOKEN / 4u, 1u)
#endif
            [[unroll]] for (uint m = LANES_A_WEIGHT / 2u; m > 0u; m /= 2u) {
                [[unroll]] for (uint h = 0u; h < HEADS; ++h) dots[h] += subgroupShuffleXor(dots[h], m);
            }
            const uint own_token = subgroup_token + range * SPLIT + own_step * SLOTS + slot;
            const bool unseen = own_token < seen || own_token > position;
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                precise const float score = unseen ? LOWEST : dots[h] * scale;
                top[h] = score;
                [[unroll]] for (uint m = LANES_A_WEIGHT; m < SUBGROUP_SIZE; m *= 2u) top[h] = max(top[h], subgroupShuffleXor(top[h], m));
                const uint at = weights_at + h * STEPS + own_step;
                if (lane % LANES_A_WEIGHT == 0u) weights[at / 4u][at % 4u] = unseen ? 0.0 : exp(score - top[h]);
            }
        }
        subgroupMemoryBarrierShared();
        subgroupBarrier();
        [[unroll]] for (uint quad = 0u; quad < STEPS; quad += 4u) {
            if (sees) {
                vec4 own[HEADS];
                [[unroll]] for (uint h = 0u; h < HEADS; ++h) own[h] = weights[(weights_at + h * STEPS + quad) / 4u];
                [[unroll]] for (uint s = 0u; s < 4u; ++s) {
                    [[unroll]] for (uint h = 0u; h < HEADS; ++h) total[h] += own[h][s];
                    [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
                        float value[8];
                        unpack8(vs[(quad + s) * UNITS_A_LANE + c], value);
                        [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                            [[unroll]] for (uint i = 0u; i < 8u; ++i)
                                sums_of[(h * UNITS_A_LANE + c) * 8u + i] = fma(own[h][s], value[i], sums_of[(h * UNITS_A_LANE + c) * 8u + i]);
                        }
                    }
                }
            }
            if (next < splits) LOAD_STEPS(quad, 4u, ks, k_cache, next, newest_row, true)
        }
        // The slots add up theirs, again by halves: a lane ends with KEPT dimensions of each of its units.
#if SLOTS > 1
        if (sees) {
            ADD_SLOTS(LANES_A_TOKEN, 4u)
#if SLOTS > 2
            ADD_SLOTS(2u * LANES_A_TOKEN, 2u)
#endif
#if SLOTS > 4
            ADD_SLOTS(4u * LANES_A_TOKEN, 1u)
#endif
        }
#endif
        if (next < splits) LOAD_STEPS(0u, EARLY_VALUES, vs, v_cache, next, newest_row, true)
        if (t % SUBGROUP_SIZE == 0u) {
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                tops[h * SUBGROUPS + subgroup] = top[h];
                totals[h * SUBGROUPS + subgroup] = total[h];
            }
        }
        [[unroll]] for (uint base = 0u; base < HEADS; base += HEADS_AT_ONCE) {
            [[unroll]] for (uint h = 0u; h < min(HEADS_AT_ONCE, HEADS - base); ++h) {
                [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
                    const uint unit = c * LANES_A_TOKEN + lane, from = ((base + h) * UNITS_A_LANE + c) * 8u;
                    const uint place = (subgroup * HEADS_AT_ONCE + h) * HEAD_VECTORS + unit * 2u;
                    if (unit >= HEAD_UNITS) continue;
#if SUBGROUP_SIZE == LANES_A_TOKEN
                    parts[place] = vec4(sums_of[from], sums_of[from + 1u], sums_of[from + 2u], sums_of[from + 3u]);
                    parts[place + 1u] = vec4(sums_of[from + 4u], sums_of[from + 5u], sums_of[from + 6u], sums_of[from + 7u]);
#elif SUBGROUP_SIZE == 2 * LANES_A_TOKEN
                    parts[place + slot] = vec4(sums_of[from], sums_of[from + 1u], sums_of[from + 2u], sums_of[from + 3u]);
#else
                    const uint dim = slot % 2u * 4u + slot / 2u % 2u * 2u + slot / 4u % 2u * (2u - KEPT);
                    [[unroll]] for (uint i = 0u; i < KEPT; ++i) parts[place + dim / 4u][dim % 4u + i] = sums_of[from + i];
#endif
                }
            }
            barrier();
            finish_range(range, splits, first_head, base, min(HEADS_AT_ONCE, max(head_count, base) - base));
            if (base + HEADS_AT_ONCE < HEADS) barrier();
        }
        if (next < splits) barrier();
    }
#ifdef MERGE
    if (splits == 1u) return;
    memoryBarrierBuffer();
    barrier();
    if (t == 0u) arrived = atomicAdd(arrivals.data[gl_WorkGroupID.y], 1u);
    barrier();
    if (arrived + 1u < min(gl_NumWorkGroups.x, splits)) return;
    memoryBarrierBuffer();
    merge(first_head, head_count, splits);
    if (t == 0u) arrivals.data[gl_WorkGroupID.y] = 0u;
#endif
}

#include "main.glsl"
