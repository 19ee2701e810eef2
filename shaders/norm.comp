#version 460
// RMS norm: y[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * weight, one workgroup of LANES a token.
#include "binding.glsl"
#include "reduce.glsl"

layout(local_size_x = LANES) in;

BUFFER(0, readonly, X, float, x)
BUFFER(1, readonly, Weight, float, weight)
BUFFER(2, writeonly, Y, float, y)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Weight, weight)
    ADDRESS(Y, y)
    uint width;
    float eps;
PUSH_END

void kernel() {
    const uint lane = gl_LocalInvocationIndex;
    const uint base = gl_WorkGroupID.x * width;
    float sum = 0.0;
    for (uint i = lane; i < width; i += LANES) {
        const float value = x.data[base + i];
        sum = fma(value, value, sum);
    }
    const float scale = inversesqrt(workgroup_sum(sum) / float(width) + eps);
    for (uint i = lane; i < width; i += LANES) y.data[base + i] = x.data[base + i] * scale * weight.data[i];
}

#include "main.glsl"
