#version 460
// RMS norm: y[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * weight, or += with ADD, one workgroup of LANES a token. On GPUs the
// squares are summed as block_x.glsl does it where a projection norms its own input: quads (four columns) in a chain, the
// eight of a block of 32 in a tree, then the BLOCKS blocks over the lanes of a subgroup.
#include "binding.glsl"
#include "reduce.glsl"

layout(local_size_x = LANES) in;

BUFFER(0, readonly, X, float, x)
BUFFER(1, readonly, Weight, float, weight)
BUFFER(2, READWRITE, Y, float, y)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Weight, weight)
    ADDRESS(Y, y)
    uint width;
    float inverse_width;
    float eps;
PUSH_END

void store(uint i, float value) {
#ifdef ADD
    y.data[i] += value;
#else
    y.data[i] = value;
#endif
}

float normed(float value, float scale, float factor) {
    precise const float result = value * scale * factor;
    return result;
}

#ifdef CPU_DEVICE  // neighbouring lanes on neighbouring elements: one vector load
void kernel() {
    const uint lane = gl_LocalInvocationIndex;
    const uint base = gl_WorkGroupID.x * width;
    float sum = 0.0;
    for (uint i = lane; i < width; i += LANES) {
        const float value = x.data[base + i];
        sum = fma(value, value, sum);
    }
    const float scale = inversesqrt(fma(workgroup_sum(sum), inverse_width, eps));
    for (uint i = lane; i < width; i += LANES) store(base + i, normed(x.data[base + i], scale, weight.data[i]));
}
#else
#extension GL_EXT_control_flow_attributes : require
#define TURNS ((BLOCKS * 8u + LANES - 1u) / LANES)
shared float square_sums[BLOCKS];

// An invocation keeps its quads, so that all loads are in flight at once.
void kernel() {
    const uint lane = gl_LocalInvocationIndex;
    const uint base = gl_WorkGroupID.x * width;
    vec4 v[TURNS], factors[TURNS];
    [[unroll]] for (uint k = 0u; k < TURNS; ++k) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            const uint i = (k * LANES + lane) * 4u + c;
            v[k][c] = i < width ? x.data[base + i] : 0.0;
            factors[k][c] = i < width ? weight.data[i] : 0.0;
        }
    }
    [[unroll]] for (uint k = 0u; k < TURNS; ++k) {
        float sum = fma(v[k].w, v[k].w, fma(v[k].z, v[k].z, fma(v[k].y, v[k].y, v[k].x * v[k].x)));
        [[unroll]] for (uint m = 1u; m < 8u; m *= 2u) sum += subgroupShuffleXor(sum, m);
        const uint quad = k * LANES + lane;
        if (quad % 8u == 0u && quad < BLOCKS * 8u) square_sums[quad / 8u] = sum;
    }
    barrier();
    float sum = 0.0;
    for (uint b = lane % SUBGROUP_SIZE; b < BLOCKS; b += SUBGROUP_SIZE) sum += square_sums[b];
    const float scale = inversesqrt(fma(subgroup_sum(sum), inverse_width, eps));
    [[unroll]] for (uint k = 0u; k < TURNS; ++k) {
        [[unroll]] for (uint c = 0u; c < 4u; ++c) {
            const uint i = (k * LANES + lane) * 4u + c;
            if (i < width) store(base + i, normed(v[k][c], scale, factors[k][c]));
        }
    }
}
#endif

#include "main.glsl"
