// How x reaches the invocations of a workgroup: normed if NORM, and as block_products.glsl takes it.

// An invocation loads quads q0 to q7 of a chunk side by side with its neighbours, all at once; they reach the invocation
// that owns their block through shared memory, half a block at a time.
uint quad_place_in(uint chunk, uint k) {
    const uint item = (k & 3u) * LANES + gl_LocalInvocationIndex;
    return (chunk * LANES + item / 4u) * 8u + (k & 4u) + item % 4u;
}

vec4 x_quad(uint chunk, uint k) {
    const uint quad = quad_place_in(chunk, k);
    vec4 v = vec4(0.0);
    if (quad < QUADS) v = x.data[quad];
    return v;
}

vec4 norm_quad(uint chunk, uint k) {
    const uint quad = quad_place_in(chunk, k);
    vec4 v = vec4(0.0);
    if (quad < QUADS) v = norm.data[quad];
    return v;
}

void stage_quad(uint k, vec4 v) {
    const uint item = k * LANES + gl_LocalInvocationIndex;
    staged[item / 4u * PITCH + item % 4u] = v;
}

void stage_half(vec4 a, vec4 b, vec4 c, vec4 d) {
    stage_quad(0u, a);
    stage_quad(1u, b);
    stage_quad(2u, c);
    stage_quad(3u, d);
    barrier();
}

#define DECLARE_QUADS(q) vec4 q##a, q##b, q##c, q##d, q##e, q##f, q##g, q##h;
#define LOAD_QUADS(q, load, chunk) \
    q##a = load(chunk, 0u); q##b = load(chunk, 1u); q##c = load(chunk, 2u); q##d = load(chunk, 3u); \
    q##e = load(chunk, 4u); q##f = load(chunk, 5u); q##g = load(chunk, 6u); q##h = load(chunk, 7u);

// The RMS norm's factor: an invocation sums the squares of its quads in this order, as norm.comp does.
#define ADD_SQUARES(sum, q) \
    sum = add_quad(sum, q##a, q##a); sum = add_quad(sum, q##b, q##b); sum = add_quad(sum, q##c, q##c); \
    sum = add_quad(sum, q##d, q##d); sum = add_quad(sum, q##e, q##e); sum = add_quad(sum, q##f, q##f); \
    sum = add_quad(sum, q##g, q##g); sum = add_quad(sum, q##h, q##h);
float norm_factor(float squares) { return inversesqrt(fma(workgroup_sum(squares), inverse_width, eps)); }

// with NORM_LATE the norm's weights are loaded after its sum, which costs a wait and saves registers
#ifdef NORM_LATE
#define LOAD_NORM_EARLY
#define LOAD_NORM_LATE LOAD_NORM(0u)
#else
#define LOAD_NORM_EARLY LOAD_NORM(0u)
#define LOAD_NORM_LATE
#endif
#ifdef NORM
#define DECLARE_NORM DECLARE_QUADS(n_) float norm_scale;
#define LOAD_NORM(chunk) LOAD_QUADS(n_, norm_quad, chunk)
#define SCALE_QUAD_BY_NORM(one) q_##one = q_##one * norm_scale * n_##one;
#define APPLY_NORM \
    SCALE_QUAD_BY_NORM(a) SCALE_QUAD_BY_NORM(b) SCALE_QUAD_BY_NORM(c) SCALE_QUAD_BY_NORM(d) \
    SCALE_QUAD_BY_NORM(e) SCALE_QUAD_BY_NORM(f) SCALE_QUAD_BY_NORM(g) SCALE_QUAD_BY_NORM(h)
#define NORM_OF_ONE_CHUNK { float squares = 0.0; ADD_SQUARES(squares, q_) norm_scale = norm_factor(squares); }
#define NORM_OF_CHUNKS \
    { \
        float squares = 0.0; \
        for (uint chunk = 0u; chunk < CHUNKS; ++chunk) { LOAD_QUADS(q_, x_quad, chunk) ADD_SQUARES(squares, q_) } \
        norm_scale = norm_factor(squares); \
    }
#else
#define DECLARE_NORM
#define LOAD_NORM(chunk)
#define APPLY_NORM
#define NORM_OF_ONE_CHUNK
#define NORM_OF_CHUNKS
#endif

vec4 own_quad(uint i) { return staged[gl_LocalInvocationIndex * PITCH + i]; }
float quad_total(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

#ifdef PLAIN
#define DECLARE_X vec4 x0, x1, x2, x3, x4, x5, x6, x7;
#define TAKE_X \
    stage_half(q_a, q_b, q_c, q_d); \
    x0 = own_quad(0u); x1 = own_quad(1u); x2 = own_quad(2u); x3 = own_quad(3u); \
    barrier(); \
    stage_half(q_e, q_f, q_g, q_h); \
    x4 = own_quad(0u); x5 = own_quad(1u); x6 = own_quad(2u); x7 = own_quad(3u);
#else
float quad_top(vec4 v) { return max(max(abs(v.x), abs(v.y)), max(abs(v.z), abs(v.w))); }

// The planes of a quad of x: round(x * factor), with |x * factor| < 2^22, is x + 256 y + 65536 z.
ivec3 quad_planes(vec4 v, float factor) {
    // the addition of 1.5 * 2^23 leaves the rounded value in the lowest bits; that of 0x80 a byte makes all bytes unsigned
    const uvec4 bits = floatBitsToUint(fma(v, vec4(factor), vec4(12582912.0))) - 0x4B400000u + 0x00808080u;
    const uint even01 = (bits.x & 0x00ff00ffu) | ((bits.y & 0x00ff00ffu) << 8);
    const uint even23 = (bits.z & 0x00ff00ffu) | ((bits.w & 0x00ff00ffu) << 8);
    const uint odd01 = ((bits.x >> 8) & 0xffu) | (bits.y & 0xff00u);
    const uint odd23 = ((bits.z >> 8) & 0xffu) | (bits.w & 0xff00u);
    const uvec3 bytes = uvec3(
        (even01 & 0xffffu) | (even23 << 16), odd01 | (odd23 << 16), (even01 >> 16) | (even23 & 0xffff0000u));
    return ivec3(bytes ^ 0x80808080u);
}

ivec3 add_totals(ivec3 sums, ivec3 planes) { return add_dots(sums, 0x01010101u, planes); }

#define DECLARE_X ivec3 x0, x1, x2, x3, x4, x5, x6, x7, low_start, high_start; float total, x_scale;
#define TAKE_X \
    { \
        stage_half(q_a, q_b, q_c, q_d); \
        const vec4 v0 = own_quad(0u), v1 = own_quad(1u), v2 = own_quad(2u), v3 = own_quad(3u); \
        barrier(); \
        stage_half(q_e, q_f, q_g, q_h); \
        const vec4 v4 = own_quad(0u), v5 = own_quad(1u), v6 = own_quad(2u), v7 = own_quad(3u); \
        total = ((quad_total(v0) + quad_total(v1)) + (quad_total(v2) + quad_total(v3))) \
            + ((quad_total(v4) + quad_total(v5)) + (quad_total(v6) + quad_total(v7))); \
        const float top = max(max(max(quad_top(v0), quad_top(v1)), max(quad_top(v2), quad_top(v3))), \
            max(max(quad_top(v4), quad_top(v5)), max(quad_top(v6), quad_top(v7)))); \
        const uint exponent = clamp(floatBitsToUint(top) >> 23, 22u, 253u); \
        const float factor = uintBitsToFloat((275u - exponent) << 23); \
        /* a sum that is no number stays none: told by its bits, since compilers take total - total for 0 */ \
        const bool finite = (floatBitsToUint(total) & 0x7f800000u) != 0x7f800000u; \
        x_scale = uintBitsToFloat(finite ? (exponent - 21u) << 23 : 0x7fc00000u); \
        x0 = quad_planes(v0, factor); x1 = quad_planes(v1, factor); \
        x2 = quad_planes(v2, factor); x3 = quad_planes(v3, factor); \
        x4 = quad_planes(v4, factor); x5 = quad_planes(v5, factor); \
        x6 = quad_planes(v6, factor); x7 = quad_planes(v7, factor); \
        low_start = -OFFSET * add_totals(add_totals(add_totals(add_totals(ivec3(0), x0), x1), x2), x3); \
        high_start = -OFFSET * add_totals(add_totals(add_totals(add_totals(ivec3(0), x4), x5), x6), x7); \
        if (WEIGHT_TYPE != WEIGHT_Q6_K) low_start += high_start; \
    }
#endif
