// Matrix-vector products on GPUs: a subgroup shares a row, lane l taking units l, l + S, ... in order.
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

#define LANE (gl_LocalInvocationIndex % SUBGROUP_SIZE)

// the (d, m) of a unit's places
void unit_scales(RowBase base, Cover cover, out vec2 ds[UNIT_QUADS]) {
#if WEIGHT_TYPE == WEIGHT_Q4_K
    const uint at = super_index(base, cover.block);
    const uvec4 words = uvec4(SCALE(base, at), SCALE(base, at + 1u), SCALE(base, at + 2u), SCALE(base, at + 3u));
    [[unroll]] for (uint p = 0u; p < UNIT_QUADS; ++p) ds[p] = k4_scale(words, p);
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const uint at = sub_index(base, cover.block), shift = ((cover.quad >> 2) & 1u) * 8u;
    const float d = unpackHalf2x16(SCALE(base, d_index(base, cover.block)) >> HALF_SHIFT(base, cover.block)).x;
    [[unroll]] for (uint pair = 0u; pair < 4u; ++pair) {
        const int word = int(SCALE(base, at + pair) >> shift);
        const vec2 two = d * vec2(float(bitfieldExtract(word, 0, 8)), float(bitfieldExtract(word, 16, 8)));
        ds[2u * pair] = vec2(two.x, -Q6_K_OFFSET * two.x);
        ds[2u * pair + 1u] = vec2(two.y, -Q6_K_OFFSET * two.y);
    }
#elif (WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q5_0) && !RAGGED
    const uint at = d_index(base, cover.block);
    [[unroll]] for (uint pair = 0u; pair < 4u; ++pair) {
        const vec2 two = unpackHalf2x16(SCALE(base, at + pair));
        const float offset = WEIGHT_TYPE == WEIGHT_Q4_0 ? -Q4_0_OFFSET : -Q5_0_OFFSET;
        ds[2u * pair] = vec2(two.x, offset * two.x);
        ds[2u * pair + 1u] = vec2(two.y, offset * two.y);
    }
#else
    [[unroll]] for (uint p = 0u; p < UNIT_QUADS; ++p) ds[p] = block_scale(base, cover.block + p * cover.block_step, 0u);
#endif
}

// one unit of a row: xs its quads of x, totals the sums of each
float add_unit(float sum, RowBase base, uint unit, Cover cover, vec4 xs[UNIT_QUADS], float totals[UNIT_QUADS]) {
    const uvec4 data = QUANT(base, unit_index(base, unit));
    const uvec2 high = load_high(base, unit);
#ifndef PLAIN
    vec2 ds[UNIT_QUADS];
    unit_scales(base, cover, ds);
#endif
    [[unroll]] for (uint p = 0u; p < UNIT_QUADS; ++p) {
        const vec4 q = unit_quad(data, high, p), v = xs[p];
        const float product = fma(q.w, v.w, fma(q.z, v.z, fma(q.y, v.y, q.x * v.x)));
#if defined(PLAIN)
        sum += product;
#elif defined(NO_MIN)
        sum = fma(ds[p].x, product, sum);
#else
        sum = fma(ds[p].y, totals[p], fma(ds[p].x, product, sum));
#endif
    }
    return sum;
}

#define LOAD_X(xs, totals, cover) \
    [[unroll]] for (uint p = 0u; p < UNIT_QUADS; ++p) { \
        xs[p] = X_AT(cover.quad + p * cover.quad_step); \
        totals[p] = (xs[p].x + xs[p].y) + (xs[p].z + xs[p].w); \
    }

// the sum over a subgroup's lanes, in all of them
float lanes_total(float sum) {
    [[unroll]] for (uint mask = SUBGROUP_SIZE / 2; mask > 0; mask /= 2) sum += subgroupShuffleXor(sum, mask);
    return sum;
}
