#version 460
// The second half of decode attention in two dispatches. One invocation an element of the output.
#include "binding.glsl"
#include "state.glsl"
#include "window.glsl"

layout(local_size_x = 64) in;

BUFFER(0, readonly, Parts, float, parts)
BUFFER(1, readonly, Sums, vec2, sums)
BUFFER(2, readonly, State, uint, state)
BUFFER(3, writeonly, Merged, float, merged)
PUSH_BEGIN
    ADDRESS(Parts, parts)
    ADDRESS(Sums, sums)
    ADDRESS(State, state)
    ADDRESS(Merged, merged)
    uint heads;
    uint window;
PUSH_END

#define PART(i) parts.data[i]
#include "attend_merge.glsl"

void kernel() {
    const uint i = gl_GlobalInvocationID.x;
    const uint width = heads * HEAD_DIM;
    if (i >= width) return;
    const uint position = state.data[STATE_POSITION];
    merge_element(i, position / SPLIT - first_seen(position, window) / SPLIT + 1);
}

#include "main.glsl"
