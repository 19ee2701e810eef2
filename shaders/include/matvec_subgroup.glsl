// Matrix-vector products on GPUs: a subgroup shares a row, lane l taking blocks l, l + S, ... in order.
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#ifndef TAIL
#define TAIL 0
#endif
#if TAIL
// cols is no multiple of 32: the weights are padded with zeros, x is not
#define X_AT(i) ((i) < cols / 4u ? x.data[min(i, cols / 4u - 1u)] : vec4(0.0))
#else
#define X_AT(i) x.data[i]
#endif

// one block of a row: x its 32 columns, totals the sums of the two halves of x
float add_block(float sum, RowBase base, uint block, vec4 xs[8], vec2 totals) {
    const Block data = load_block(base, block);
    vec4 low = block_quad(data, 0u) * xs[0], high = block_quad(data, 4u) * xs[4];
    [[unroll]] for (uint i = 1u; i < 4u; ++i) {
        low = fma(block_quad(data, i), xs[i], low);
        high = fma(block_quad(data, i + 4u), xs[i + 4u], high);
    }
    const float first = (low.x + low.y) + (low.z + low.w), second = (high.x + high.y) + (high.z + high.w);
#if defined(PLAIN)
    return sum + (first + second);
#else
    const vec3 scale = block_scale(base, block);
#if WEIGHT_TYPE == WEIGHT_Q6_K
    return fma(scale.y, fma(-32.0, totals.y, second), fma(scale.x, fma(-32.0, totals.x, first), sum));
#elif defined(NO_MIN)
    return fma(scale.x, first + second, sum);
#else
    return fma(scale.z, totals.x + totals.y, fma(scale.x, first + second, sum));
#endif
#endif
}

vec2 half_totals(vec4 xs[8]) {
    const vec4 low = (xs[0] + xs[1]) + (xs[2] + xs[3]), high = (xs[4] + xs[5]) + (xs[6] + xs[7]);
    return vec2((low.x + low.y) + (low.z + low.w), (high.x + high.y) + (high.z + high.w));
}

// the sum over a subgroup's lanes, in all of them
float lanes_total(float sum) {
    [[unroll]] for (uint mask = SUBGROUP_SIZE / 2; mask > 0; mask /= 2) sum += subgroupShuffleXor(sum, mask);
    return sum;
}
