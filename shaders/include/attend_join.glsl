// The end of attend_groups.comp and attend_matrices.comp with MERGE: a workgroup joins its heads' token ranges, to the bit
// as attend_merge.glsl does. The buffers, push constants and sizes are the kernel's.
#include "activation.glsl"

shared uint arrived;

// with GATED times the sigmoid of a gate, rounded as sigmoid_mul.comp does
void write_merged(uint i, float value, float total) {
    precise float joined = value / total;
#ifdef GATED
    joined *= sigmoid(gate.data[i]);
#endif
    merged.data[i] = joined;
}

#define IN_FLIGHT 4u  // ranges of a lane
#define AT_ONCE (4u * IN_FLIGHT)

// Joins the ranges, in the order and with the roundings of attend_merge.glsl: four lanes have a vector's four sums, and
// each ends with one of its numbers. `vector` is one of the workgroup's `count` heads', or none.
void join_vector(uint vector, uint first_head, uint count, uint splits) {
    const uint chain = gl_LocalInvocationIndex % 4u, h = vector / HEAD_VECTORS, at = first_head * HEAD_VECTORS + vector;
    const uint of_ours = h < count ? splits : 0u;
    vec4 value = vec4(0.0);
    float top = LOWEST, total = 0.0;
    [[dont_unroll]] for (uint from = 0u; from < of_ours; from += AT_ONCE) {
        vec4 loaded[IN_FLIGHT];
        vec2 found[IN_FLIGHT];
        [[unroll]] for (uint n = 0u; n < IN_FLIGHT; ++n) {
            const uint s = min(from + chain + 4u * n, of_ours - 1u);
            found[n] = sums.data[s * heads + first_head + h];
            loaded[n] = result.data[s * heads * HEAD_VECTORS + at];
        }
        if (from == 0u) {  // what is loaded are all ranges, as a rule
            [[unroll]] for (uint n = 0u; n < IN_FLIGHT; ++n) top = max(top, found[n].x);
            [[dont_unroll]] for (uint s = AT_ONCE + chain; s < of_ours; s += 4u) top = max(top, sums.data[s * heads + first_head + h].x);
            top = max(top, subgroupShuffleXor(top, 1u));
            top = max(top, subgroupShuffleXor(top, 2u));
        }
        [[unroll]] for (uint n = 0u; n < IN_FLIGHT; ++n) {
            const float factor = from + chain + 4u * n < of_ours ? exp(found[n].x - top) : 0.0;
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
    if (h < count) write_merged(at * 4u + (odd ? 2u : 0u) + (upper ? 1u : 0u), own, total);
}

void merge(uint first_head, uint count, uint splits) {
    const uint t = gl_LocalInvocationIndex;
#if HEADS * HEAD_DIM > LANES
    [[dont_unroll]] for (uint base = 0u; base < count * HEAD_DIM; base += LANES) join_vector((base + t) / 4u, first_head, count, splits);
#else
    join_vector(t / 4u, first_head, count, splits);
#endif
}

// For all workgroups, once they have left their ranges' results: the last one of its heads to arrive joins them.
void join_last(uint first_head, uint count, uint splits) {
    const uint t = gl_LocalInvocationIndex;
#ifdef FLAGS
    flag_join();
    if (t == 0u) {
        arrived = atomicAdd(arrivals.data[gl_WorkGroupID.y], 1u,
            gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
    }
    flag_join();
#else
    memoryBarrierBuffer();
    barrier();
    if (t == 0u) arrived = atomicAdd(arrivals.data[gl_WorkGroupID.y], 1u);
    barrier();
#endif
    if (arrived + 1u < min(gl_NumWorkGroups.x, splits)) return;
#ifndef FLAGS  // as flag_wait.glsl says: what follows loads device-coherently
    memoryBarrierBuffer();
#endif
    if (t == 0u) arrivals.data[gl_WorkGroupID.y] = 0u;  // before what follows: the fence at a kernel's end waits for it
    merge(first_head, count, splits);
}
