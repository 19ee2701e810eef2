#version 460
// The delta rule over a chunk's tokens on GPUs: a workgroup has COLUMNS columns of a head's state in registers. A
// column is contiguous: the state lies by value dimension, then by key dimension.
#include "binding.glsl"
#include "state.glsl"
#include "delta.glsl"

#define LANES 128
layout(local_size_x = LANES) in;

BUFFER(0, readonly, Y, vec4, y)
BUFFER(1, readonly, X, float, x)
BUFFER(2, readonly, Alpha, float, alpha)
BUFFER(3, readonly, Beta, float, beta)
BUFFER(4, readonly, Bias, float, bias)
BUFFER(5, readonly, A, float, a)
BUFFER(6, READWRITE, Ring, float, ring)
BUFFER(7, READWRITE, Delta, vec4, delta)
BUFFER(8, readonly, State, uint, state)
BUFFER(9, writeonly, Out, float, result)
BUFFER(10, writeonly, MarkedRing, float, marked_ring)
BUFFER(11, writeonly, MarkedDelta, vec4, marked_delta)
PUSH_BEGIN
    ADDRESS(Y, y)
    ADDRESS(X, x)
    ADDRESS(Alpha, alpha)
    ADDRESS(Beta, beta)
    ADDRESS(Bias, bias)
    ADDRESS(A, a)
    ADDRESS(Ring, ring)
    ADDRESS(Delta, delta)
    ADDRESS(State, state)
    ADDRESS(Out, result)
    ADDRESS(MarkedRing, marked_ring)
    ADDRESS(MarkedDelta, marked_delta)
    uint key_heads;
    uint value_heads;
    uint tokens;
PUSH_END

#define COLUMNS (LANES / COLUMN_LANES)
#define KEY(m) key[m]
#define QUERY(m) query[m]
vec4 key[COLUMN_QUADS], query[COLUMN_QUADS];
#include "delta_column.glsl"
#define MARKED
#include "delta_ring.glsl"

void kernel() {
    if (state.data[STATE_DONE] != 0u) return;
    const uint position = state.data[STATE_POSITION], mark = state.data[STATE_MARK];
    const uint lane = gl_LocalInvocationIndex % COLUMN_LANES;
    const uint head = gl_WorkGroupID.y, key_head = head % key_heads;
    const uint i = head * HEAD_DIM + gl_WorkGroupID.x * COLUMNS + gl_LocalInvocationIndex / COLUMN_LANES;
    const float factor = a.data[head], offset = bias.data[head];
    const uint first = i * (HEAD_DIM / 4) + lane;
    [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) {
        column[m] = vec4(0.0);
        if (position != 0) column[m] = delta.data[first + m * COLUMN_LANES];
    }
    vec4 next_key[COLUMN_QUADS], next_query[COLUMN_QUADS];
    float next_v, next_alpha, next_beta;
    for (uint token = 0; token <= tokens; ++token) {  // one token ahead with the loads
        const float v = next_v, alpha_now = next_alpha, beta_now = next_beta;
        [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) {
            key[m] = next_key[m];
            query[m] = next_query[m];
        }
        const uint loaded = min(token, tokens - 1), row = loaded * (channels() / 4);
        const uint query_at = row + key_head * (HEAD_DIM / 4) + lane, key_at = query_at + key_heads * (HEAD_DIM / 4);
        [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) {
            next_query[m] = y.data[query_at + m * COLUMN_LANES];
            next_key[m] = y.data[key_at + m * COLUMN_LANES];
        }
        next_v = y.data[row + key_heads * (HEAD_DIM / 2) + i / 4][i % 4];
        next_alpha = alpha.data[loaded * value_heads + head];
        next_beta = beta.data[loaded * value_heads + head];
        if (token == 0) continue;
        const float o = column_step(v, decay(factor, alpha_now, offset), sigmoid(beta_now));
        if (lane == 0) result.data[(token - 1) * value_heads * HEAD_DIM + i] = o;
        if (token - 1 == mark) {
            [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) marked_delta.data[first + m * COLUMN_LANES] = column[m];
        }
    }
    [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) delta.data[first + m * COLUMN_LANES] = column[m];
    const uint group = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uint index = group * LANES + gl_LocalInvocationIndex, count = value_heads * HEAD_DIM * COLUMN_LANES;
    mark_inputs(position, tokens, mark, index, count);
    store_inputs(position, tokens, index, count);
}

#include "main.glsl"
