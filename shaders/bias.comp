#version 460
// x[t] += bias: x (tokens, width), bias (width). One invocation an element.
#include "binding.glsl"

layout(local_size_x = 64) in;

BUFFER(0, READWRITE, X, float, x)
BUFFER(1, readonly, Bias, float, bias)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Bias, bias)
    uint width;
    uint count;
PUSH_END

void kernel() {
    for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) x.data[i] += bias.data[i % width];
}

#include "main.glsl"
