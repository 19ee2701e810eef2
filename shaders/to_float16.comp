#version 460
// Y[t] = X[t] in float16, times the power of two that brings the token's largest value to [2^14, 2^15), so that none
// overflows; factor[t] is one over it (and over WEIGHT_FACTOR). A workgroup of LANES a token; Y has whole blocks of 32
// columns, zeros behind the last.
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "binding.glsl"
#include "reduce.glsl"
#include "float16.glsl"

layout(local_size_x = LANES) in;

BUFFER(0, readonly, X, vec4, x)
BUFFER(1, writeonly, Y, uvec2, y)
BUFFER(2, writeonly, Factors, float, factors)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Y, y)
    ADDRESS(Factors, factors)
    uint cols;
PUSH_END

void kernel() {
    const uint quads = cols / 4u, padded = (cols + 31u) / 32u * 8u, token = gl_WorkGroupID.x;
    float largest = 0.0;
    for (uint quad = gl_LocalInvocationIndex; quad < quads; quad += LANES) {
        const vec4 v = abs(x.data[token * quads + quad]);
        largest = max(largest, max(max(v.x, v.y), max(v.z, v.w)));
    }
    const uint exponent = max(floatBitsToUint(workgroup_max(largest)) >> 23, 32u);  // both factors stay normal
    const float factor = uintBitsToFloat((268u - exponent) << 23);
    for (uint quad = gl_LocalInvocationIndex; quad < padded; quad += LANES) {
        const vec4 v = quad < quads ? x.data[token * quads + quad] * factor : vec4(0.0);
        const uint at = (token * padded + quad / 8u * 8u) * X_PARTS + quad % 8u;
#if X_PARTS > 1
        y.data[at] = float16_quad(upper_part(v));
        y.data[at + 8u] = float16_quad(v - upper_part(v));
#else
        y.data[at] = float16_quad(v);
#endif
    }
    if (gl_LocalInvocationIndex == 0u) {
        factors.data[token] = uintBitsToFloat((exponent - 14u) << 23) / WEIGHT_FACTOR;
    }
}

#include "main.glsl"
