#version 460
// RMS norm: y[t] = x[t] * rsqrt(mean(x[t]^2) + eps) * weight, or += with ADD, one workgroup of LANES a token. The squares are summed as
// block_x.glsl does it where a projection norms its own input.
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

void kernel() {
    const uint lane = gl_LocalInvocationIndex;
    const uint base = gl_WorkGroupID.x * width;
    float sum = 0.0;
#ifdef CPU_DEVICE  // neighbouring lanes on neighbouring elements: one vector load
    for (uint i = lane; i < width; i += LANES) {
        const float value = x.data[base + i];
        sum = fma(value, value, sum);
    }
#else
    for (uint chunk = 0; chunk * LANES * 32 < width; ++chunk) {
        for (uint k = 0; k < 8; ++k) {
            const uint item = (k & 3u) * LANES + lane;
            const uint quad = (chunk * LANES + item / 4) * 8 + (k & 4u) + item % 4;
            for (uint i = quad * 4; i < min(quad * 4 + 4, width); ++i) {
                const float value = x.data[base + i];
                sum = fma(value, value, sum);
            }
        }
    }
#endif
    const float scale = inversesqrt(fma(workgroup_sum(sum), inverse_width, eps));
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
