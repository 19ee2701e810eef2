#version 460
// x += y, element by element.
#include "binding.glsl"

layout(local_size_x = 64) in;

BUFFER(0, READWRITE, X, float, x)
BUFFER(1, readonly, Y, float, y)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Y, y)
    uint count;
PUSH_END

void kernel() {
    for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) x.data[i] += y.data[i];
}

#include "main.glsl"
