// Gated DeltaNet: what its kernels share, so that they agree to the bit however the work is divided.
// HEAD_DIM elements a head. The convolution's channels are those of all query, key and value heads, in this order;
// value head j goes with query and key head j % key_heads. engine/cache.py describes the state.
//
//   y = silu(sum_t weight[t] x[t]) over the newest 4 tokens;  q = l2(y_q) / sqrt(HEAD_DIM), k = l2(y_k), v = y_v
//   S *= exp(a softplus(alpha + bias));  d = sigmoid(beta) (v - S^T k);  S += k d^T;  o = S^T q
//   out = rms(o) w silu(z)
// What compilers might reorder is precise: products with constants, above all.
#extension GL_EXT_control_flow_attributes : require
#include "activation.glsl"

#include "subgroup.glsl"

#define CONV_TOKENS 4u

// On GPUs so many neighbouring invocations hold a column of the state, each COLUMN_QUADS of its quads: lane,
// lane + COLUMN_LANES, ...
#if SUBGROUP_SIZE < 8
#define COLUMN_LANES SUBGROUP_SIZE
#else
#define COLUMN_LANES 8
#endif
#define COLUMN_QUADS (HEAD_DIM / 4 / COLUMN_LANES)

// where a token's row of the ring of inputs begins
uint ring_row(uint position, uint channels) { return position % CONV_TOKENS * channels; }

// from the inputs of this token (x.w) and the three before
float conv_silu(vec4 weight, vec4 x) {
    return silu(fma(weight.w, x.w, fma(weight.z, x.z, fma(weight.y, x.y, weight.x * x.x))));
}

// What a query or key head is multiplied by, from the sum of its squares.
float l2_scale(float squares, bool query) {
    precise float scale = inversesqrt(squares + 1e-6);
    if (query) scale *= inversesqrt(float(HEAD_DIM));
    return scale;
}

// max(v, 0) + log(1 + e), e = exp(-|v|). GPUs' log is coarse near 1: log(1 + e) = 2 atanh(z), z = e / (2 + e) <= 1/3.
float softplus(float v) {
    precise const float e = exp(-abs(v));
    precise const float z = e / (2.0 + e), square = z * z;
    precise float series = 1.0 / 13.0;
    series = fma(series, square, 1.0 / 11.0);
    series = fma(series, square, 1.0 / 9.0);
    series = fma(series, square, 1.0 / 7.0);
    series = fma(series, square, 1.0 / 5.0);
    series = fma(series, square, 1.0 / 3.0);
    series = fma(series, square, 1.0);
    series = fma(2.0 * z, series, max(v, 0.0));
    return series;
}

// what a token leaves of the state before it
float decay(float a, float alpha, float bias) {
    precise const float exponent = a * softplus(alpha + bias);
    return exp(exponent);
}

// The gated RMS norm of one element; `squares` is the sum over its head.
float gated_norm(float value, float squares, float eps, float weight, float z) {
    precise const float scale = inversesqrt(fma(squares, 1.0 / float(HEAD_DIM), eps));
    precise const float normed = value * scale * weight * silu(z);
    return normed;
}
