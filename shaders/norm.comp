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

#ifndef CPU_DEVICE
shared float square_sums[BLOCKS];

float quad_square(uint i, uint base) {
    float sum = 0.0;
    for (uint c = i; c < min(i + 4u, width); ++c) {
        const float value = x.data[base + c];
        sum = fma(value, value, sum);
    }
    return sum;
}

void square_blocks(uint base) {
    for (uint first = 0u; first < BLOCKS * 8u; first += LANES) {
        const uint quad = first + gl_LocalInvocationIndex;
        float sum = quad_square(quad * 4u, base);
        for (uint m = 1u; m < 8u; m *= 2u) sum += subgroupShuffleXor(sum, m);
        if (quad % 8u == 0u && quad < BLOCKS * 8u) square_sums[quad / 8u] = sum;
    }
    barrier();
}
#endif

void kernel() {
    const uint lane = gl_LocalInvocationIndex;
    const uint base = gl_WorkGroupID.x * width;
    float sum = 0.0;
#ifdef CPU_DEVICE  // neighbouring lanes on neighbouring elements: one vector load
    for (uint i = lane; i < width; i += LANES) {
        const float value = x.data[base + i];
        sum = fma(value, value, sum);
    }
    sum = workgroup_sum(sum);
#else
    square_blocks(base);
    for (uint b = lane % SUBGROUP_SIZE; b < BLOCKS; b += SUBGROUP_SIZE) sum += square_sums[b];
    sum = subgroup_sum(sum);
#endif
    const float scale = inversesqrt(fma(sum, inverse_width, eps));
    for (uint i = lane; i < width; i += LANES) {
        precise const float normed = x.data[base + i] * scale * weight.data[i];
#ifdef ADD
        y.data[base + i] += normed;
#else
        y.data[base + i] = normed;
#endif
    }
}

#include "main.glsl"
