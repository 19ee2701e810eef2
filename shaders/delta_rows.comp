#version 460
// The delta rule over a chunk's tokens on software devices: an invocation has a column of a head's state, by itself.
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
BUFFER(6, writeonly, Ring, float, ring)
BUFFER(7, READWRITE, Delta, float, delta)
BUFFER(8, readonly, State, uint, state)
BUFFER(9, writeonly, Out, float, result)
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
    uint key_heads;
    uint value_heads;
    uint tokens;
PUSH_END

#include "delta_ring.glsl"

void kernel() {
    if (state.data[STATE_DONE] != 0u) return;
    const uint position = state.data[STATE_POSITION];
    const uint i = gl_GlobalInvocationID.x, head = i / HEAD_DIM, key_head = head % key_heads;
    if (head >= value_heads) return;
    const uint first = head * HEAD_DIM * HEAD_DIM + i % HEAD_DIM;
    for (uint token = 0; token < tokens; ++token) {
        const uint row = token * channels(), scalars = token * value_heads + head;
        const uint query = row + key_head * HEAD_DIM, key = query + key_heads * HEAD_DIM;
        const float kept = decay(a.data[head], alpha.data[scalars], bias.data[head]);
        const bool fresh = position + token == 0;
        float sum = 0.0;
        if (!fresh) {
            for (uint d = 0; d < HEAD_DIM; ++d) sum = fma(delta.data[first + d * HEAD_DIM] * kept, y.data[key + d], sum);
        }
        const float change = sigmoid(beta.data[scalars]) * (y.data[row + 2 * key_heads * HEAD_DIM + i] - sum);
        float o = 0.0;
        for (uint d = 0; d < HEAD_DIM; ++d) {
            const uint place = first + d * HEAD_DIM;
            const float before = fresh ? 0.0 : delta.data[place] * kept;
            const float value = fma(y.data[key + d], change, before);
            delta.data[place] = value;
            o = fma(value, y.data[query + d], o);
        }
        result.data[token * value_heads * HEAD_DIM + i] = o;
    }
    store_inputs(position, tokens, i, value_heads * HEAD_DIM);
}

#include "main.glsl"
