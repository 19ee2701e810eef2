#version 460
// Decode attention for GPUs. A workgroup of LANES does heads_a_group (HEADS at most) of the query heads that share a KV
// head, for every gl_NumWorkGroups.x-th token range of SPLIT; ranges are numbered from the first one that is seen. Keys and
// values are loaded once for all heads, a range ahead. LANES_A_TOKEN lanes share a token, eight dimensions a load each.
// A head's arithmetic depends neither on the other heads nor on how ranges are shared out. The unnormalised results of a
// range go to partials; with MERGE the last of a head's workgroups to arrive joins the ranges as attend_merge.comp does.
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"
#include "subgroup.glsl"
#extension GL_EXT_control_flow_attributes : require

layout(local_size_x = LANES) in;

BUFFER(0, readonly, Q, vec4, q)
BUFFER(1, readonly, KCache, uvec4, k_cache)
BUFFER(2, readonly, VCache, uvec4, v_cache)
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
    uint heads_a_group;
    float scale;
    uint window;
PUSH_END

#define OWN_AWAIT
#define SUBGROUPS (LANES / SUBGROUP_SIZE)
#define HEAD_VECTORS (HEAD_DIM / 4u)
#define HEAD_UNITS (HEAD_DIM / 8u)                                  // 16-byte units of a key
#define UNITS_A_LANE ((HEAD_UNITS + LANES_A_TOKEN - 1u) / LANES_A_TOKEN)
#define UNITS (UNITS_A_LANE * LANES_A_TOKEN)                        // with those beyond the head's end
#define AT_ONCE (LANES / LANES_A_TOKEN)                             // tokens in one step
#define STEPS (SPLIT / AT_ONCE)
#define TOKENS_A_SUBGROUP (SUBGROUP_SIZE / LANES_A_TOKEN)           // in one step
#define LOADS (STEPS * UNITS_A_LANE)                                // of a lane, of a range's keys
#define HALF_VECTORS (HEAD_UNITS + 4u)  // of parts: as the vectors lie, a subgroup that reads or writes meets each bank once
#define PART_VECTORS (2u * HEAD_UNITS + 4u)
#define LOWEST -3.0e38
#if HEADS > HEADS_AT_ONCE  // shared memory has room for the results of some
#define EACH_BATCH(base) [[dont_unroll]] for (uint base = 0u; base < heads_a_group; base += HEADS_AT_ONCE)
#else
#define EACH_BATCH(base) const uint base = 0u;
#endif

// Of a head's vectors of four dimensions the even ones come first, then the odd ones, so that lanes find theirs side by
// side: in queries and parts.
shared vec4 queries[HEADS * UNITS * 2u];  // times scale
shared float scores[HEADS * SPLIT];       // then the weights: by slot, then by step
shared float tops[HEADS];
shared float totals[HEADS * SUBGROUPS];
shared vec4 parts[SUBGROUPS * HEADS_AT_ONCE * PART_VECTORS];  // each subgroup's results for a range

void load_queries(uint first_head) {
    [[dont_unroll]] for (uint i = gl_LocalInvocationIndex; i < heads_a_group * UNITS * 2u; i += LANES) {
        const uint unit = i % UNITS, half_head = i / UNITS;
        const uint at = ((first_head + half_head / 2u) * HEAD_UNITS + unit) * 2u + half_head % 2u;
        queries[i] = unit < HEAD_UNITS ? q.data[at] * scale : vec4(0.0);
    }
}

#ifdef MERGE
shared uint arrived;
#include "attend_join.glsl"
#endif

// Scores to weights, and each subgroup's sums of them: of each head by a subgroup, whose lanes have a slot each.
void weigh_tokens() {
    [[dont_unroll]] for (uint h = gl_LocalInvocationIndex / SUBGROUP_SIZE; h < heads_a_group; h += SUBGROUPS) {
        const uint first_slot = gl_LocalInvocationIndex % SUBGROUP_SIZE;
        float top = LOWEST;
        [[unroll]] for (uint other = first_slot; other < AT_ONCE; other += SUBGROUP_SIZE) {
            [[unroll]] for (uint s = 0u; s < STEPS; ++s) top = max(top, scores[h * SPLIT + other * STEPS + s]);
        }
        top = subgroup_max(top);
        if (first_slot == 0u) tops[h] = top;
        [[unroll]] for (uint other = first_slot; other < AT_ONCE; other += SUBGROUP_SIZE) {
            float sum = 0.0;
            [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
                const float score = scores[h * SPLIT + other * STEPS + s], weight = score == LOWEST ? 0.0 : exp(score - top);
                scores[h * SPLIT + other * STEPS + s] = weight;
                sum += weight;
            }
            [[unroll]] for (uint m = 1u; m < TOKENS_A_SUBGROUP; m *= 2u) sum += subgroupShuffleXor(sum, m);
            if (other % TOKENS_A_SUBGROUP == 0u) totals[h * SUBGROUPS + other / TOKENS_A_SUBGROUP] = sum;
        }
    }
}

// Adds up what the subgroups have of the `count` heads from `base` on.
void finish_range(uint range, uint splits, uint first_head, uint base, uint count) {
    [[dont_unroll]] for (uint item = gl_LocalInvocationIndex; item < count * HEAD_DIM / 2u; item += LANES) {
        const uint part = item * 2u / HEAD_DIM, h = base + part, dim = item * 2u % HEAD_DIM;
        const uint at = part * PART_VECTORS + dim / 4u % 2u * HALF_VECTORS + dim / 8u;
        vec2 value = vec2(parts[at][dim % 4u], parts[at][dim % 4u + 1u]);
        [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) {
            value += vec2(parts[g * HEADS_AT_ONCE * PART_VECTORS + at][dim % 4u], parts[g * HEADS_AT_ONCE * PART_VECTORS + at][dim % 4u + 1u]);
        }
        float total = 0.0;
        if (dim == 0u || splits == 1u) {
            total = totals[h * SUBGROUPS];
            [[unroll]] for (uint g = 1u; g < SUBGROUPS; ++g) total += totals[h * SUBGROUPS + g];
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
        if (dim == 0u) sums.data[range * heads + first_head + h] = vec2(tops[h], total);
    }
}

void unpack8(uvec4 raw, uint at, inout float values[LOADS * 8u]) {
    [[unroll]] for (uint i = 0u; i < 4u; ++i) {
        const vec2 two = unpackHalf2x16(raw[i]);
        values[at + 2u * i] = two.x;
        values[at + 2u * i + 1u] = two.y;
    }
}

// A lane's keys or values of a range, up to row `newest` of the cache. Where this token's key and value are awaited, all
// others were there before and are loaded meanwhile. `turned` changes the steps' order.
#define LOAD_ROWS(values, cache, range, turned, newest, wanted) \
    [[unroll]] for (uint s = 0u; s < STEPS; ++s) { \
        const uint row = clamp(first_row + (range) * SPLIT + (s ^ turned) * AT_ONCE, oldest_row, newest); \
        [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) { \
            const uint unit = min(c * LANES_A_TOKEN + lane, HEAD_UNITS - 1u); \
            if (wanted) values[s * UNITS_A_LANE + c] = cache.data[row * HEAD_UNITS + unit]; \
        } \
    }

void kernel() {
    const uint t = gl_LocalInvocationIndex, lane = t % LANES_A_TOKEN, slot = t / LANES_A_TOKEN, subgroup = t / SUBGROUP_SIZE;
    const uint first_head = gl_WorkGroupID.y * heads_a_group;
    const uint position = state.data[STATE_POSITION];
    const uint seen = first_seen(position, window), first_split = seen / SPLIT, splits = position / SPLIT - first_split + 1u;
    uint range = gl_WorkGroupID.x;
    if (range >= splits) return;
    const uint base_row = first_head / (heads / kv_heads) * context;
    const uint first_row = base_row + first_split * SPLIT + slot, oldest_row = base_row + seen, newest_row = base_row + position;
    // A lane adds up its tokens' dot products over the lanes of a token by halves: it ends with one token's. It has the keys
    // in the order in which the ones it gives away come last; and of the values' words too.
    const uint own_step = lane * STEPS / LANES_A_TOKEN;
    const bool swaps_pairs = TOKENS_A_SUBGROUP > 1u && (t & LANES_A_TOKEN) != 0u;
    const bool swaps_words = TOKENS_A_SUBGROUP > 2u && (t & (2u * LANES_A_TOKEN)) != 0u;
    uvec4 ks[LOADS], vs[LOADS];
#if defined(RESIDENT) || defined(FLAGS)
    const uint old_row = max(newest_row, oldest_row + 1u) - 1u;
    LOAD_ROWS(ks, k_cache, range, own_step, old_row, true)
    LOAD_ROWS(vs, v_cache, range, 0u, old_row, true)
    AWAIT
    LOAD_ROWS(ks, k_cache, range, own_step, newest_row, row == newest_row)
    LOAD_ROWS(vs, v_cache, range, 0u, newest_row, row == newest_row)
    load_queries(first_head);
#else
    load_queries(first_head);
    LOAD_ROWS(ks, k_cache, range, own_step, newest_row, true)
    LOAD_ROWS(vs, v_cache, range, 0u, newest_row, true)
#endif
    barrier();
    [[dont_unroll]] for (; range < splits; range += gl_NumWorkGroups.x) {
        const uint next = range + gl_NumWorkGroups.x;
        float keys[LOADS * 8u];
        [[unroll]] for (uint i = 0u; i < LOADS; ++i) unpack8(ks[i], i * 8u, keys);
        if (next < splits) LOAD_ROWS(ks, k_cache, next, own_step, newest_row, true)
        const uint own_row = first_row + range * SPLIT + own_step * AT_ONCE;
        const bool unseen = own_row < oldest_row || own_row > newest_row;
        uint own_score = slot * STEPS + own_step;
        [[dont_unroll]] for (uint h = 0u; h < heads_a_group; ++h, own_score += SPLIT) {
            float dots[STEPS];
            [[unroll]] for (uint s = 0u; s < STEPS; ++s) dots[s] = 0.0;
            [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
                [[unroll]] for (uint half_unit = 0u; half_unit < 2u; ++half_unit) {
                    const vec4 query = queries[(h * 2u + half_unit) * UNITS + c * LANES_A_TOKEN + lane];
                    [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
                        [[unroll]] for (uint i = 0u; i < 4u; ++i) {
                            dots[s] = fma(query[i], keys[(s * UNITS_A_LANE + c) * 8u + half_unit * 4u + i], dots[s]);
                        }
                    }
                }
            }
            [[unroll]] for (uint m = LANES_A_TOKEN / 2u; m > 0u; m /= 2u) {
                const uint kept = max(1u, STEPS * m / LANES_A_TOKEN), given = STEPS * m * 2u / LANES_A_TOKEN > 1u ? kept : 0u;
                [[unroll]] for (uint s = 0u; s < kept; ++s) dots[s] += subgroupShuffleXor(dots[given + s], m);
            }
            if (lane % (LANES_A_TOKEN / STEPS) == 0u) scores[own_score] = unseen ? LOWEST : dots[0];
        }
        barrier();
        weigh_tokens();
        barrier();
        float values[LOADS * 8u];
        [[unroll]] for (uint i = 0u; i < LOADS; ++i) {
            uvec4 raw = vs[i];
            if (swaps_pairs) raw = raw.zwxy;
            if (swaps_words) raw = raw.yxwz;
            unpack8(raw, i * 8u, values);
        }
        if (next < splits) LOAD_ROWS(vs, v_cache, next, 0u, newest_row, true)
        EACH_BATCH(base) {
            const uint count = min(HEADS_AT_ONCE, heads_a_group - base);
            [[dont_unroll]] for (uint h = 0u; h < count; ++h) {
                float weights[STEPS];
                [[unroll]] for (uint s = 0u; s < STEPS; ++s) weights[s] = scores[(base + h) * SPLIT + slot * STEPS + s];
                [[unroll]] for (uint c = 0u; c < UNITS_A_LANE; ++c) {
                    float acc[8];
                    [[unroll]] for (uint i = 0u; i < 8u; ++i) {
                        acc[i] = 0.0;
                        [[unroll]] for (uint s = 0u; s < STEPS; ++s) {
                            acc[i] = fma(weights[s], values[(s * UNITS_A_LANE + c) * 8u + i], acc[i]);
                        }
                    }
                    const uint unit = c * LANES_A_TOKEN + lane;
                    const uint place = (subgroup * HEADS_AT_ONCE + h) * PART_VECTORS + unit + (swaps_pairs ? HALF_VECTORS : 0u);
#if TOKENS_A_SUBGROUP > 1
                    [[unroll]] for (uint i = 0u; i < 4u; ++i) acc[i] += subgroupShuffleXor(acc[4u + i], LANES_A_TOKEN);
#endif
#if TOKENS_A_SUBGROUP > 2
                    [[unroll]] for (uint i = 0u; i < 2u; ++i) {
                        acc[i] += subgroupShuffleXor(acc[2u + i], 2u * LANES_A_TOKEN);
                        [[unroll]] for (uint m = 4u * LANES_A_TOKEN; m < SUBGROUP_SIZE; m *= 2u) acc[i] += subgroupShuffleXor(acc[i], m);
                        if (unit < HEAD_UNITS) parts[place][(swaps_words ? 2u : 0u) + i] = acc[i];
                    }
#else
                    if (unit < HEAD_UNITS) parts[place] = vec4(acc[0], acc[1], acc[2], acc[3]);
#if TOKENS_A_SUBGROUP == 1
                    if (unit < HEAD_UNITS) parts[place + HALF_VECTORS] = vec4(acc[4], acc[5], acc[6], acc[7]);
#endif
#endif
                }
            }
            barrier();
            finish_range(range, splits, first_head, base, count);
#if HEADS > HEADS_AT_ONCE
            if (base + HEADS_AT_ONCE < heads_a_group) barrier();
#endif
        }
    }
#ifdef MERGE
    if (splits == 1u) return;
    memoryBarrierBuffer();
    barrier();
    if (t == 0u) arrived = atomicAdd(arrivals.data[gl_WorkGroupID.y], 1u);
    barrier();
    if (arrived + 1u < min(gl_NumWorkGroups.x, splits)) return;
    memoryBarrierBuffer();
    merge(first_head, splits);
    if (t == 0u) arrivals.data[gl_WorkGroupID.y] = 0u;
#endif
}

#include "main.glsl"
