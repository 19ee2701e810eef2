#version 460
// out = rms(o) w silu(z), the RMS norm a head's: one subgroup a head and token.
#include "binding.glsl"
#include "delta.glsl"

layout(local_size_x = SUBGROUP_SIZE) in;

BUFFER(0, readonly, O, float, o)
BUFFER(1, readonly, Z, float, z)
BUFFER(2, readonly, Weight, float, weight)
BUFFER(3, writeonly, Result, float, result)
PUSH_BEGIN
    ADDRESS(O, o)
    ADDRESS(Z, z)
    ADDRESS(Weight, weight)
    ADDRESS(Result, result)
    float eps;
PUSH_END

void kernel() {
    const uint lane = gl_LocalInvocationIndex;
    const uint first = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * HEAD_DIM;
    float squares = 0.0;
    for (uint i = lane; i < HEAD_DIM; i += SUBGROUP_SIZE) squares = fma(o.data[first + i], o.data[first + i], squares);
    squares = subgroup_sum(squares);
    for (uint i = lane; i < HEAD_DIM; i += SUBGROUP_SIZE) {
        result.data[first + i] = gated_norm(o.data[first + i], squares, eps, weight.data[i], z.data[first + i]);
    }
}

#include "main.glsl"
