#version 460
// out[i] = silu(gate[i]) * up[i].
#include "binding.glsl"
#include "activation.glsl"

layout(local_size_x = 64) in;

BUFFER(0, readonly, Gate, float, gate)
BUFFER(1, readonly, Up, float, up)
BUFFER(2, writeonly, Result, float, result)
PUSH_BEGIN
    ADDRESS(Gate, gate)
    ADDRESS(Up, up)
    ADDRESS(Result, result)
    uint count;
PUSH_END

void kernel() {
    for (uint i = gl_GlobalInvocationID.x; i < count; i += gl_NumWorkGroups.x * gl_WorkGroupSize.x) result.data[i] = silu(gate.data[i]) * up.data[i];
}

#include "main.glsl"
