#version 460
// The delta rule over a chunk's tokens on software devices: an invocation has a column of a head's state, by itself, in
// registers: all is unrolled, since an array indexed by a variable is read lane by lane.
// Lanes are neighbouring columns, so the state lies by key dimension, then by value dimension.
#include "binding.glsl"
#include "state.glsl"
#include "delta.glsl"

layout(local_size_x = SUBGROUP_SIZE) in;

BUFFER(0, readonly, Y, float, y)
BUFFER(1, readonly, X, float, x)
BUFFER(2, readonly, Alpha, float, alpha)
BUFFER(3, readonly, Beta, float, beta)
BUFFER(4, readonly, Bias, float, bias)
BUFFER(5, readonly, A, float, a)
BUFFER(6, READWRITE, Ring, float, ring)
BUFFER(7, READWRITE, Delta, float, delta)
BUFFER(8, readonly, State, uint, state)
BUFFER(9, writeonly, Out, float, result)
BUFFER(10, writeonly, MarkedRing, float, marked_ring)
BUFFER(11, writeonly, MarkedDelta, float, marked_delta)
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

#define MARKED
#include "delta_ring.glsl"

void kernel() {
    if (state.data[STATE_DONE] != 0u) return;
    const uint position = state.data[STATE_POSITION], mark = state.data[STATE_MARK];
    // from the workgroup's number, so that what is the same in all lanes is loaded once
    const uint head = gl_WorkGroupID.x / (HEAD_DIM / SUBGROUP_SIZE), key_head = head % key_heads;
    const uint i = gl_GlobalInvocationID.x, first = head * HEAD_DIM * HEAD_DIM + i - head * HEAD_DIM;
    float column[HEAD_DIM];
    [[unroll]] for (uint d = 0; d < HEAD_DIM; ++d) column[d] = position == 0 ? 0.0 : delta.data[first + d * HEAD_DIM];
    for (uint token = 0; token < tokens; ++token) {
        const uint row = token * channels(), scalars = token * value_heads + head;
        const uint query = row + key_head * HEAD_DIM, key = query + key_heads * HEAD_DIM;
        const float kept = decay(a.data[head], alpha.data[scalars], bias.data[head]);
        float sum = 0.0;
        [[unroll]] for (uint d = 0; d < HEAD_DIM; ++d) {
            column[d] *= kept;
            sum = fma(column[d], y.data[key + d], sum);
        }
        const float change = sigmoid(beta.data[scalars]) * (y.data[row + 2 * key_heads * HEAD_DIM + i] - sum);
        float o = 0.0;
        [[unroll]] for (uint d = 0; d < HEAD_DIM; ++d) {
            column[d] = fma(y.data[key + d], change, column[d]);
            o = fma(column[d], y.data[query + d], o);
        }
        result.data[token * value_heads * HEAD_DIM + i] = o;
        if (token == mark) {
            [[unroll]] for (uint d = 0; d < HEAD_DIM; ++d) marked_delta.data[first + d * HEAD_DIM] = column[d];
        }
    }
    [[unroll]] for (uint d = 0; d < HEAD_DIM; ++d) delta.data[first + d * HEAD_DIM] = column[d];
    mark_inputs(position, tokens, mark, i, value_heads * HEAD_DIM);
    store_inputs(position, tokens, i, value_heads * HEAD_DIM);
}

#include "main.glsl"
