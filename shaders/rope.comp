#version 460
// Rotates x (tokens, heads, HEAD_DIM) in place; token t stands at the state's position + t. One invocation a pair.
#include "binding.glsl"
#include "state.glsl"
#include "rope.glsl"

layout(local_size_x = 64) in;

BUFFER(0, READWRITE, X, float, x)
BUFFER(1, readonly, Table, vec2, table)
BUFFER(2, readonly, State, uint, state)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Table, table)
    ADDRESS(State, state)
    uint heads;
    uint tokens;
PUSH_END

void kernel() {
    const uint i = gl_GlobalInvocationID.x;
    const uint pairs = ROTATED / 2;
    if (i >= tokens * heads * pairs) return;
    const uint p = i % pairs;
    const uint head = i / pairs;  // over tokens and heads
    const uvec2 pair = rope_pair(p) + head * HEAD_DIM;
    const vec2 angle = table.data[(state.data[STATE_POSITION] + head / heads) * pairs + p];
    const vec2 turned = rope_turn(vec2(x.data[pair.x], x.data[pair.y]), angle);
    x.data[pair.x] = turned.x;
    x.data[pair.y] = turned.y;
}

#include "main.glsl"
