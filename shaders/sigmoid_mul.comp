#version 460
// x[i] *= sigmoid(gate[i]).
#include "binding.glsl"
#include "activation.glsl"

layout(local_size_x = 64) in;

BUFFER(0, READWRITE, X, float, x)
BUFFER(1, readonly, Gate, float, gate)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Gate, gate)
    uint count;
PUSH_END

void kernel() {
    const uint i = gl_GlobalInvocationID.x;
    if (i < count) x.data[i] *= sigmoid(gate.data[i]);
}

#include "main.glsl"
