#version 460
// RMS norm of each head of x (rows, HEAD_DIM) in place, by the same weights (HEAD_DIM). One workgroup a head.
#include "binding.glsl"

layout(local_size_x = SUBGROUP_SIZE) in;

BUFFER(0, READWRITE, X, float, x)
BUFFER(1, readonly, Weight, float, weight)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Weight, weight)
    float eps;
PUSH_END

uint base;
#define HEAD_ELEMENT(i) x.data[base + (i)]
#include "head_norm.glsl"

void kernel() {
    base = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * HEAD_DIM;
    const float factor = head_norm_factor(eps);
    for (uint i = gl_LocalInvocationIndex; i < HEAD_DIM; i += SUBGROUP_SIZE) {
        x.data[base + i] = head_normed(x.data[base + i], factor, weight.data[i]);
    }
}

#include "main.glsl"
