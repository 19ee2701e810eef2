#version 460
// Decode attention for GPUs. A workgroup of LANES does HEADS (1, 2 or 4) of the query heads that share a KV head, for every
// gl_NumWorkGroups.x-th token range of SPLIT; ranges are numbered from the first one that is seen. It goes through a range
// in chunks, of which each subgroup has neighbouring tokens, whose keys and values are loaded once for all heads;
// LANES_A_TOKEN lanes share a token, eight dimensions a load each. Maxima and sums are a subgroup's own affair: subgroups
// meet only where a range's results are added up. A head's arithmetic depends neither on the other heads nor on how ranges
// are shared out. The unnormalised results of a range go to partials, unless MERGE finds it the only one; with MERGE the
// last of a head's workgroups to arrive joins the ranges as attend_merge.comp does.
//
// Its code shares the instruction cache with the other kernels of a layer: there is one place each that loads keys, loads
// values and multiplies, and as few steps are unrolled as keep the bus busy.
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
#define AWAITS_ALWAYS
#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define HEAD_VECTORS (HEAD_DIM / 4u)
#define HEAD_UNITS (HEAD_DIM / 8u)  // 16-byte units of a key
#define UNITS_A_LANE ((HEAD_UNITS + LANES_A_TOKEN - 1u) / LANES_A_TOKEN)
#define UNITS (UNITS_A_LANE * LANES_A_TOKEN)  // with those beyond the head's end
#define STEPS 4u  // tokens of a lane in a chunk
#define SLOTS (SUBGROUP_SIZE / LANES_A_TOKEN)  // tokens of a subgroup in a step
#define TOKENS_A_SUBGROUP (STEPS * SLOTS)
#define CHUNK (SUBGROUPS * TOKENS_A_SUBGROUP)
#define LANES_A_STEP (LANES_A_TOKEN / STEPS)
#define SCORES (HEADS > LANES_A_STEP ? HEADS / LANES_A_STEP : 1u)  // that a lane ends up with, of neighbouring heads
#define LANES_A_SCORE (LANES_A_STEP * SCORES / HEADS)
#define LOADS (STEPS * UNITS_A_LANE)
#define WEIGHT_VECTORS (STEPS * HEADS / 4u)  // of a slot
#define KEPT (8 / SLOTS)  // of a unit's eight dimensions, what a lane has once the slots are added up
#define FACTOR_VECTORS ((SUBGROUPS + 3u) / 4u)
#define LOWEST -3.0e38

shared vec4 queries[HEADS * UNITS * 2u];  // of a head the even vectors, then the odd ones
shared vec4 weights[SUBGROUPS * SLOTS * WEIGHT_VECTORS];  // by subgroup, slot, step and head
shared float rescales[SUBGROUPS * HEADS];  // what a subgroup's results so far are multiplied by, as its maximum rises
shared float tops[HEADS * SUBGROUPS], totals[HEADS * SUBGROUPS], range_tops[HEADS];
shared vec4 factors[HEADS * FACTOR_VECTORS], weighted[HEADS * FACTOR_VECTORS];  // of subgroups, and their totals times them
shared vec4 parts[SUBGROUPS * HEADS * HEAD_VECTORS];  // each subgroup's results for a range

#ifdef MERGE
#include "attend_join.glsl"
#endif

void load_queries(uint first_head) {
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < HEADS * UNITS * 2u; i += LANES) {
        const uint unit = i % UNITS, head = min(first_head + i / (UNITS * 2u), heads - 1u);
        const vec4 query = q.data[(head * HEAD_UNITS + min(unit, HEAD_UNITS - 1u)) * 2u + i / UNITS % 2u];
        queries[i] = unit < HEAD_UNITS ? query : vec4(0.0);
    }
}

// How much each subgroup's results count.
void weigh_subgroups() {
    [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < HEADS * SUBGROUPS; item += LANES) {
        const uint h = item / SUBGROUPS, g = item % SUBGROUPS, at = h * FACTOR_VECTORS * 4u + g;
        float top = tops[h * SUBGROUPS];
        [[unroll]] for (uint other = 1u; other < SUBGROUPS; ++other) top = max(top, tops[h * SUBGROUPS + other]);
        const float own = tops[item], factor = own == LOWEST ? 0.0 : exp(own - top);
        factors[at / 4u][at % 4u] = factor;
        weighted[at / 4u][at % 4u] = factor * totals[item];
        if (g == 0u) range_tops[h] = top;
    }
}

// Adds up what the subgroups have.
void finish_range(uint range, uint splits, uint first_head, uint count) {
    [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < count * HEAD_DIM; item += LANES) {
        const uint h = item / HEAD_DIM, dim = item % HEAD_DIM;
        float value = 0.0, total = 0.0;
        [[dont_unroll]] for (uint four = 0u; four < FACTOR_VECTORS; ++four) {
            const vec4 factor = factors[h * FACTOR_VECTORS + four], sum = weighted[h * FACTOR_VECTORS + four];
            [[unroll]] for (uint g = 0u; g < min(4u, SUBGROUPS); ++g) {
                value = fma(factor[g], parts[(four * 4u + g) * HEADS * HEAD_VECTORS + item / 4u][item % 4u], value);
                total += sum[g];
            }
        }
        const uint place = first_head * HEAD_DIM + item;
#ifdef MERGE
        if (splits == 1u) {  // what joining a single range gives, to the bit
            write_merged(place, value, total);
            continue;
        }
#endif
        result.data[range * heads * HEAD_VECTORS + place / 4u][item % 4u] = value;
        if (dim == 0u) sums.data[range * heads + first_head + h] = vec2(range_tops[h], total);
    }
}

vec4 unpack4(uint low, uint high) {
    return vec4(unpackHalf2x16(low), unpackHalf2x16(high));
}

#define STEP_ROW(s, turned) (lane_row + loaded + ((s) ^ (turned)) * SLOTS)
// A lane's keys or values of the chunk at token `loaded`, up to row `newest` of the cache; `turned` changes the steps' order.
#define LOAD_STEPS(values, cache, turned) \
    if (loads) { \
        [[unroll]] for (uint s = 0u; s < STEPS; ++s) { \
            const uint row = clamp(STEP_ROW(s, turned), oldest_row, newest); \
            [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) { \
                const uint unit = min(c * LANES_A_TOKEN + lane, HEAD_UNITS - 1u); \
                values[s * UNITS_A_LANE + c] = cache.data[row * HEAD_UNITS + unit]; \
            } \
        } \
    }
// This token's, and what stands for those behind it, or before it where it sees itself alone.
#define LOAD_NEWEST(values, cache, turned) \
    [[unroll]] for (uint s = 0u; s < STEPS; ++s) { \
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) { \
            const uint unit = min(c * LANES_A_TOKEN + lane, HEAD_UNITS - 1u); \
            if (max(STEP_ROW(s, turned), oldest_row) >= newest_row) values[s * UNITS_A_LANE + c] = cache.data[newest_row * HEAD_UNITS + unit]; \
        } \
    }
// Steps of the sums over a token's lanes, each with constant bounds: NVIDIA's compiler unrolls no loops whose bounds come from
// an outer one, and keeps `dots` in memory then, which made this kernel four times slower with four heads.
#define FOLD_STEPS(m) \
    [[unroll]] for (uint i = 0u; i < (m) * HEADS; ++i) dots[i] += subgroupShuffleXor(dots[(m) * HEADS + i], (m) * LANES_A_STEP);
#define HEADS_KEPT(m) ((m) >= LANES_A_SCORE ? (m) / LANES_A_SCORE * SCORES : 0u)
#define FOLD_HEADS(m) { \
        const bool upper = (lane & (m)) != 0u; \
        [[unroll]] for (uint i = 0u; i < max(HEADS_KEPT(m), SCORES); ++i) { \
            const float own = HEADS_KEPT(m) > 0u && upper ? dots[HEADS_KEPT(m) + i] : dots[i]; \
            const float given = HEADS_KEPT(m) > 0u && !upper ? dots[HEADS_KEPT(m) + i] : dots[i]; \
            dots[i] = own + subgroupShuffleXor(given, m); \
        } \
    }
#define CLEAR_SUMS { \
        [[unroll]] for (uint i = 0u; i < HEADS * UNITS_A_LANE * 8u; ++i) acc[i] = 0.0; \
        [[unroll]] for (uint i = 0u; i < SCORES; ++i) { \
            top[i] = LOWEST; \
            total[i] = 0.0; \
        } \
    }
// Half of the slots give `kept` dimensions of each unit to the others, and get as many others.
#define ADD_SLOTS(m, kept) { \
        const bool upper = (t & (m)) != 0u; \
        [[unroll]] for (uint unit = 0u; unit < HEADS * UNITS_A_LANE; ++unit) { \
            [[unroll]] for (uint i = 0u; i < kept; ++i) { \
                const float own = upper ? acc[unit * 8u + i + kept] : acc[unit * 8u + i]; \
                const float given = upper ? acc[unit * 8u + i] : acc[unit * 8u + i + kept]; \
                acc[unit * 8u + i] = own + subgroupShuffleXor(given, m); \
            } \
        } \
    }

void kernel() {
    const uint t = gl_LocalInvocationIndex, lane = t % LANES_A_TOKEN, subgroup = t / SUBGROUP_SIZE;
    const uint slot = t % SUBGROUP_SIZE / LANES_A_TOKEN;
    const uint position = state.data[STATE_POSITION];
    const uint seen = first_seen(position, window), first_split = seen / SPLIT, splits = position / SPLIT - first_split + 1u;
#if HEADS == 1
    const uint first_head = gl_WorkGroupID.y, head_count = 1u, kv_head = first_head / (heads / kv_heads);
#else
    const uint shared_by = heads / kv_heads, sharers = (shared_by + HEADS - 1u) / HEADS;  // heads, and workgroups, of a KV head
    const uint kv_head = gl_WorkGroupID.y / sharers, of_sharer = (gl_WorkGroupID.y - kv_head * sharers) * HEADS;
    const uint first_head = kv_head * shared_by + of_sharer, head_count = min(HEADS, shared_by - of_sharer);
#endif
    const uint base_row = kv_head * context, oldest_row = base_row + seen, newest_row = base_row + position;
    const uint subgroup_token = subgroup * TOKENS_A_SUBGROUP, lane_row = base_row + subgroup_token + slot;
    // A lane ends up with the scores of one token. It has the keys in the order in which those that it gives away come last.
    const uint own_step = lane / LANES_A_STEP, own_head = lane % LANES_A_STEP / LANES_A_SCORE * SCORES;
    uvec4 ks[LOADS], vs[LOADS];
    float acc[HEADS * UNITS_A_LANE * 8u], top[SCORES], total[SCORES];
    CLEAR_SUMS
    bool sees = false;  // whether this subgroup has tokens of the chunk at hand that are seen
    uint range = gl_WorkGroupID.x, chunk = (first_split + range) * SPLIT;  // its first token
#if defined(RESIDENT) || defined(FLAGS)  // this token's keys and values are awaited, all others are loaded meanwhile
    const uint old_row = max(newest_row, oldest_row + 1u) - 1u;
#else
    const uint old_row = newest_row;
    if (range >= splits) return;
#endif
    // Round 0 asks for the first chunk, each later one does a chunk and asks for the next.
    [[dont_unroll]] for (bool works = false;; works = true) {
        const bool ends = chunk % SPLIT == SPLIT - CHUNK || chunk + CHUNK > position;
        const uint loaded_range = works && ends ? range + gl_NumWorkGroups.x : range;
        const uint loaded = !works ? chunk : ends ? (first_split + loaded_range) * SPLIT : chunk + CHUNK;
        const bool sees_loaded = loaded + subgroup_token <= position && loaded + subgroup_token + TOKENS_A_SUBGROUP > seen;
        const bool loads = loaded_range < splits && sees_loaded;
        const uint newest = works ? newest_row : old_row;
        if (works) {
            if (sees) {
                float dots[STEPS * HEADS];
                [[unroll]] for (uint i = 0u; i < STEPS * HEADS; ++i) dots[i] = 0.0;
                [[unroll]] for (uint part = 0u; part < 2u * UNITS_A_LANE; ++part) {
                    vec4 query[HEADS];
                    [[unroll]] for (uint h = 0u; h < HEADS; ++h)
                        query[h] = queries[(h * 2u + part % 2u) * UNITS + part / 2u * LANES_A_TOKEN + lane];
                    [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
                        const uvec4 raw = ks[s * UNITS_A_LANE + part / 2u];
                        const vec4 key = part % 2u == 0u ? unpack4(raw.x, raw.y) : unpack4(raw.z, raw.w);
                        [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                            [[unroll]] for (uint i = 0u; i < 4u; ++i) dots[s * HEADS + h] = fma(query[h][i], key[i], dots[s * HEADS + h]);
                        }
                    }
                }
                // A token's lanes add up their dot products, by halves: of steps, then of heads.
                FOLD_STEPS(2u)
                FOLD_STEPS(1u)
#if LANES_A_TOKEN > 32
                FOLD_HEADS(8u)
#endif
#if LANES_A_TOKEN > 16
                FOLD_HEADS(4u)
#endif
#if LANES_A_TOKEN > 8
                FOLD_HEADS(2u)
#endif
#if LANES_A_TOKEN > 4
                FOLD_HEADS(1u)
#endif
                const uint own_token = chunk + subgroup_token + own_step * SLOTS + slot;
                const bool unseen = own_token < seen || own_token > position;
                [[unroll]] for (uint i = 0u; i < SCORES; ++i) {
                    precise const float score = unseen ? LOWEST : dots[i] * scale;
                    float chunk_top = score;
                    [[unroll]] for (uint m = LANES_A_STEP; m < SUBGROUP_SIZE; m *= 2u) chunk_top = max(chunk_top, subgroupShuffleXor(chunk_top, m));
                    chunk_top = max(chunk_top, top[i]);
                    const float rescale = exp(top[i] - chunk_top), weight = unseen ? 0.0 : exp(score - chunk_top);
                    top[i] = chunk_top;
                    total[i] = fma(total[i], rescale, weight);
                    const uint at = ((subgroup * SLOTS + slot) * STEPS + own_step) * HEADS + own_head + i;
                    weights[at / 4u][at % 4u] = weight;
                    rescales[subgroup * HEADS + own_head + i] = rescale;
                }
            }
        }
        LOAD_STEPS(ks, k_cache, own_step)
        if (works) {
            subgroupMemoryBarrierShared();
            subgroupBarrier();
            if (sees) {
                [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                    const float rescale = rescales[subgroup * HEADS + h];
                    [[unroll]] for (uint i = 0u; i < UNITS_A_LANE * 8u; ++i) acc[h * UNITS_A_LANE * 8u + i] *= rescale;
                }
                [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
                    float own[HEADS];
                    [[unroll]] for (uint h = 0u; h < HEADS; ++h)
                        own[h] = weights[(subgroup * SLOTS + slot) * WEIGHT_VECTORS + (s * HEADS + h) / 4u][(s * HEADS + h) % 4u];
                    [[unroll]] for (uint part = 0u; part < 2u * UNITS_A_LANE; ++part) {
                        const uvec4 raw = vs[s * UNITS_A_LANE + part / 2u];
                        const vec4 value = part % 2u == 0u ? unpack4(raw.x, raw.y) : unpack4(raw.z, raw.w);
                        [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                            const uint at = h * UNITS_A_LANE * 8u + part * 4u;
                            [[unroll]] for (uint i = 0u; i < 4u; ++i) acc[at + i] = fma(own[h], value[i], acc[at + i]);
                        }
                    }
                }
            }
            subgroupBarrier();
        }
        LOAD_STEPS(vs, v_cache, 0u)
        if (works && ends) {
            // The slots add up theirs, again by halves: a lane ends with KEPT dimensions of each of its units.
#if SUBGROUP_SIZE > LANES_A_TOKEN
            ADD_SLOTS(LANES_A_TOKEN, 4u)
#endif
#if SUBGROUP_SIZE > 2 * LANES_A_TOKEN
            ADD_SLOTS(2u * LANES_A_TOKEN, 2u)
#endif
#if SUBGROUP_SIZE > 4 * LANES_A_TOKEN
            ADD_SLOTS(4u * LANES_A_TOKEN, 1u)
#endif
            [[unroll]] for (uint i = 0u; i < SCORES; ++i) {
                [[unroll]] for (uint m = LANES_A_STEP; m < SUBGROUP_SIZE; m *= 2u) total[i] += subgroupShuffleXor(total[i], m);
                if (t % SUBGROUP_SIZE < LANES_A_STEP) {
                    tops[(own_head + i) * SUBGROUPS + subgroup] = top[i];
                    totals[(own_head + i) * SUBGROUPS + subgroup] = total[i];
                }
            }
            if (range != gl_WorkGroupID.x) barrier();  // the parts before have been read
            [[unroll]] for (uint h = 0u; h < HEADS; ++h) {
                [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
                    const uint unit = c * LANES_A_TOKEN + lane, from = (h * UNITS_A_LANE + c) * 8u;
                    const uint place = (subgroup * HEADS + h) * HEAD_VECTORS + unit * 2u;
                    if (unit >= HEAD_UNITS) continue;
#if SUBGROUP_SIZE == LANES_A_TOKEN
                    parts[place] = vec4(acc[from], acc[from + 1u], acc[from + 2u], acc[from + 3u]);
                    parts[place + 1u] = vec4(acc[from + 4u], acc[from + 5u], acc[from + 6u], acc[from + 7u]);
#elif SUBGROUP_SIZE == 2 * LANES_A_TOKEN
                    parts[place + slot] = vec4(acc[from], acc[from + 1u], acc[from + 2u], acc[from + 3u]);
#else
                    const uint dim = slot % 2u * 4u + slot / 2u % 2u * 2u + slot / 4u % 2u * (2u - KEPT);
                    [[unroll]] for (uint i = 0u; i < KEPT; ++i) parts[place + dim / 4u][dim % 4u + i] = acc[from + i];
#endif
                }
            }
            barrier();
            weigh_subgroups();
            barrier();
            finish_range(range, splits, first_head, head_count);
            CLEAR_SUMS
        }
        if (!works) {
#if defined(RESIDENT) || defined(FLAGS)
            AWAIT
            if (range >= splits) return;
            if (position - loaded - subgroup_token < TOKENS_A_SUBGROUP) {
                LOAD_NEWEST(ks, k_cache, own_step)
                LOAD_NEWEST(vs, v_cache, 0u)
            }
#endif
            load_queries(first_head);
            barrier();
        }
        range = loaded_range;
        if (range >= splits) break;
        chunk = loaded;
        sees = sees_loaded;
    }
#ifdef MERGE
    if (splits > 1u) join_last(first_head, head_count, splits);
#endif
}

#include "main.glsl"
