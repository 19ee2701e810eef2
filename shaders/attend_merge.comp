#version 460
// Joins the token ranges of decode attention in their order: out[head] = sum_s e^(top_s - top) acc_s / sum_s e^(top_s - top) total_s.
// One invocation an element of the output.
#include "binding.glsl"
#include "state.glsl"

layout(local_size_x = 64) in;

BUFFER(0, readonly, Parts, float, parts)
BUFFER(1, readonly, Sums, vec2, sums)
BUFFER(2, readonly, State, uint, state)
BUFFER(3, writeonly, Out, float, result)
PUSH_BEGIN
    ADDRESS(Parts, parts)
    ADDRESS(Sums, sums)
    ADDRESS(State, state)
    ADDRESS(Out, result)
    uint heads;
PUSH_END

void kernel() {
    const uint i = gl_GlobalInvocationID.x;
    const uint width = heads * HEAD_DIM;
    if (i >= width) return;
    const uint head = i / HEAD_DIM;
    const uint splits = state.data[STATE_POSITION] / SPLIT + 1;
    float top = sums.data[head].x;
    for (uint s = 1; s < splits; ++s) top = max(top, sums.data[s * heads + head].x);
    float value = 0.0, total = 0.0;
    for (uint s = 0; s < splits; ++s) {
        const vec2 sum = sums.data[s * heads + head];
        const float weight = exp(sum.x - top);
        total = fma(weight, sum.y, total);
        value = fma(weight, parts.data[s * width + i], value);
    }
    result.data[i] = value / total;
}

#include "main.glsl"
