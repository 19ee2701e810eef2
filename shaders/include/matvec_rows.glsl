// Matrix-vector products on software devices: eight lanes share a row, and an invocation keeps eight or more rows.
// There a value that is the same in all lanes costs one scalar instruction, while a load with an address a lane
// costs tens of cycles: so the weights are read as scalars, and x, the only gather, serves all rows.
// A row's arithmetic is the same whatever the number of rows an invocation keeps.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#ifndef TAIL
#define TAIL 0
#endif
#if TAIL
// cols is no multiple of 32: the weights are padded with zeros, x is not
#define X_AT(i) ((i) < cols ? x.data[min(i, cols - 1u)] : 0.0)
#else
#define X_AT(i) x.data[i]
#endif

#if SUBGROUP_SIZE == 8
// a workgroup is one subgroup: its lane numbers are constants there, while local indices are worked out by division
#define LANE gl_SubgroupInvocationID
#else
#define LANE gl_LocalInvocationIndex
#endif

// the lane's one of eight scalars: blends by constants
float pick(uint lane, float a, float b, float c, float d, float e, float f, float g, float h) {
    const float low = lane < 2u ? (lane == 0u ? a : b) : (lane == 2u ? c : d);
    const float high = lane < 6u ? (lane == 4u ? e : f) : (lane == 6u ? g : h);
    return lane < 4u ? low : high;
}

// What a lane multiplies a block of each row by: x of its columns, their sum, and what its products start from.
struct LaneX {
    vec4 x;
    float total;
    float start;
};

LaneX lane_x(uint block, uint lane) {
    float v[32];
    [[unroll]] for (uint i = 0u; i < 32u; ++i) v[i] = X_AT(block * 32u + i);
    vec4 x;
    [[unroll]] for (uint s = 0u; s < 4u; ++s)
        x[s] = pick(lane, v[lane_column(0u, s)], v[lane_column(1u, s)], v[lane_column(2u, s)], v[lane_column(3u, s)],
            v[lane_column(4u, s)], v[lane_column(5u, s)], v[lane_column(6u, s)], v[lane_column(7u, s)]);
    const float total = (x.x + x.y) + (x.z + x.w);
#if IN_PLACE
    return LaneX(x * uintBitsToFloat((127u - 4u * lane) << 23), total, lane == 7u ? 8.0 * total : 0.0);
#else
    return LaneX(x, total, 0.0);
#endif
}

// one block of a row
float add_block(float sum, RowBase base, uint block, uint lane, LaneX v) {
    const vec4 q = lane_quants(base, block, lane);
#if IN_PLACE
    const float first = fma(q.x, v.x.x, v.start);
#else
    const float first = q.x * v.x.x;
#endif
    const float product = fma(q.w, v.x.w, fma(q.z, v.x.z, fma(q.y, v.x.y, first)));
#if defined(PLAIN)
    return sum + product;
#else
    const vec2 scale = lane_scale(base, block, lane);
#if defined(MINIMUM) || OFFSET != 0
    return fma(scale.y, v.total, fma(scale.x, product, sum));
#else
    return fma(scale.x, product, sum);
#endif
#endif
}

// Lane l gets row l's sum over the eight lanes: ((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7)).
#if SUBGROUP_SIZE >= 8
float exchange(float low, float high, uint lane, uint mask) {
    const bool upper = (lane & mask) != 0u;
    return (upper ? high : low) + subgroupShuffleXor(upper ? low : high, mask);
}
float lane_total(float sums[8], uint lane) {
    const float a = exchange(sums[0], sums[1], lane, 1u), b = exchange(sums[2], sums[3], lane, 1u);
    const float c = exchange(sums[4], sums[5], lane, 1u), d = exchange(sums[6], sums[7], lane, 1u);
    return exchange(exchange(a, b, lane, 2u), exchange(c, d, lane, 2u), lane, 4u);
}
#else
shared float lane_sums[8][8];
float lane_total(float sums[8], uint lane) {
    barrier();
    [[unroll]] for (uint row = 0u; row < 8u; ++row) lane_sums[row][lane] = sums[row];
    barrier();
    return ((lane_sums[lane][0] + lane_sums[lane][1]) + (lane_sums[lane][2] + lane_sums[lane][3]))
        + ((lane_sums[lane][4] + lane_sums[lane][5]) + (lane_sums[lane][6] + lane_sums[lane][7]));
}
#endif
