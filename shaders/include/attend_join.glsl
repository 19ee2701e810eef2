// The end of attend_groups.comp with MERGE: a workgroup joins its heads' token ranges, to the bit as attend_merge.glsl does.
// The buffers, push constants, sizes and `tops` are that kernel's.
#include "activation.glsl"

// with GATED times the sigmoid of a gate, rounded as sigmoid_mul.comp does
void write_merged(uint i, float value, float total) {
    precise float joined = value / total;
#ifdef GATED
    joined *= sigmoid(gate.data[i]);
#endif
    merged.data[i] = joined;
}

#define IN_FLIGHT 8u

// The top of all ranges, of each head by a subgroup.
void find_tops(uint first_head, uint splits) {
    const uint lane = gl_LocalInvocationIndex % SUBGROUP_SIZE;
    [[dont_unroll]] for (uint h = gl_LocalInvocationIndex / SUBGROUP_SIZE; h < heads_a_group; h += SUBGROUPS) {
        float top = LOWEST;
        [[dont_unroll]] for (uint s = lane; s < splits + lane; s += 2u * SUBGROUP_SIZE) {
            const float one = sums.data[min(s, splits - 1u) * heads + first_head + h].x;
            const float other = sums.data[min(s + SUBGROUP_SIZE, splits - 1u) * heads + first_head + h].x;
            top = max(top, max(one, other));
        }
        top = subgroup_max(top);
        if (lane == 0u) tops[h] = top;
    }
}

// Joins the ranges, in the order and with the roundings of attend_merge.glsl: four lanes have a vector's four sums, and
// each ends with one of its numbers. `vector` is one of the workgroup's heads', or none.
void join_vector(uint vector, uint first_head, uint splits) {
    const uint chain = gl_LocalInvocationIndex % 4u, h = vector / HEAD_VECTORS, at = first_head * HEAD_VECTORS + vector;
    vec4 value = vec4(0.0);
    float total = 0.0;
    const bool ours = h < heads_a_group;
    [[dont_unroll]] for (uint from = ours ? 0u : splits; from < splits; from += 4u * IN_FLIGHT) {
        vec4 loaded[IN_FLIGHT];
        vec2 found[IN_FLIGHT];
        [[unroll]] for (uint n = 0u; n < IN_FLIGHT; ++n) {
            const uint s = min(from + chain + 4u * n, splits - 1u);
            loaded[n] = result.data[s * heads * HEAD_VECTORS + at];
            found[n] = sums.data[s * heads + first_head + h];
        }
        [[unroll]] for (uint n = 0u; n < IN_FLIGHT; ++n) {
            const float factor = from + chain + 4u * n < splits ? exp(found[n].x - tops[h]) : 0.0;
            total = fma(factor, found[n].y, total);
            value = fma(vec4(factor), loaded[n], value);
        }
    }
    const bool odd = (chain & 1u) != 0u, upper = (chain & 2u) != 0u;
    vec2 pair = odd ? value.zw : value.xy;
    const vec2 given = odd ? value.xy : value.zw;
    total += subgroupShuffleXor(total, 1u);
    pair.x += subgroupShuffleXor(given.x, 1u);
    pair.y += subgroupShuffleXor(given.y, 1u);
    total += subgroupShuffleXor(total, 2u);
    const float own = (upper ? pair.y : pair.x) + subgroupShuffleXor(upper ? pair.x : pair.y, 2u);
    if (ours) write_merged(at * 4u + (odd ? 2u : 0u) + (upper ? 1u : 0u), own, total);
}

void merge(uint first_head, uint splits) {
    const uint t = gl_LocalInvocationIndex, count = heads_a_group * HEAD_DIM;
    find_tops(first_head, splits);
    barrier();
#if HEADS * HEAD_DIM > LANES
    for (uint base = 0u; base < count; base += LANES) join_vector((base + t) / 4u, first_head, splits);
#else
    join_vector(t / 4u, first_head, splits);
#endif
}
