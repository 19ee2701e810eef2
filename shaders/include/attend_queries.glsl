// attend_matrices.comp's queries: each as two float16 numbers, together 22 bits, in columns of shared memory. Sizes, `queries`,
// `weights`, `factors` and push constants are the kernel's.
uvec2 half4(vec4 v) {
    const f16vec4 h = f16vec4(v);
    return uvec2(packFloat2x16(h.xy), packFloat2x16(h.zw));
}

// What float16 holds of v to the bit, however small it is: its numbers are multiples of 2^-24.
vec4 float16_part(vec4 v) { return trunc(upper_part(v) * 16777216.0) * (1.0 / 16777216.0); }

// A head's query, times the power of two that brings its largest number to [2^14, 2^15): a subgroup has a head.
void put_queries(vec4 query[QUERY_TURNS]) {
    const uint h = gl_LocalInvocationIndex / SUBGROUP_SIZE, lane = gl_LocalInvocationIndex % SUBGROUP_SIZE;
    if (h < HEADS) {
        float largest = 0.0;
        [[unroll]] for (uint turn = 0u; turn < QUERY_TURNS; ++turn) {
            const vec4 v = abs(query[turn]);
            largest = max(largest, max(max(v.x, v.y), max(v.z, v.w)));
        }
        const uint exponent = max(floatBitsToUint(subgroup_max(largest)) >> 23, 32u);  // both factors stay normal
        const float factor = uintBitsToFloat((268u - exponent) << 23);
        [[unroll]] for (uint turn = 0u; turn < QUERY_TURNS; ++turn) {
            const uint vector = turn * SUBGROUP_SIZE + lane, at = h * QUERY_PITCH + vector / 2u, word = vector % 2u * 2u;
            const vec4 scaled = query[turn] * factor, part = float16_part(scaled);
            if (vector >= HEAD_VECTORS) continue;
            const uvec2 upper = half4(part), rest = half4((scaled - part) * REST_SCALE);
            queries[at][word] = upper.x;
            queries[at][word + 1u] = upper.y;
            queries[HEADS * QUERY_PITCH + at][word] = rest.x;
            queries[HEADS * QUERY_PITCH + at][word + 1u] = rest.y;
        }
        if (lane == 0u) factors[h] = uintBitsToFloat((exponent - 14u) << 23) * scale;
    }
#if MATRIX_N > 2 * HEADS
    for (uint i = 2u * HEADS * QUERY_PITCH + gl_LocalInvocationIndex; i < MATRIX_N * QUERY_PITCH; i += LANES) queries[i] = uvec4(0u);
    for (uint i = 2u * HEADS * WEIGHT_PITCH + gl_LocalInvocationIndex; i < MATRIX_N * WEIGHT_PITCH; i += LANES) weights[i] = uvec4(0u);
#endif
}
