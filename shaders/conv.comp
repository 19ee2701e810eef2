#version 460
// A Gated DeltaNet layer's convolution, SiLU and l2 norms of queries and keys: one subgroup a head and token. The inputs
// of tokens before the first come from the ring, which delta_rows.comp or delta_groups.comp brings up to date later.
#include "binding.glsl"
#include "state.glsl"
#include "delta.glsl"

layout(local_size_x = SUBGROUP_SIZE) in;

BUFFER(0, readonly, X, float, x)
BUFFER(1, readonly, Weight, vec4, weight)
BUFFER(2, readonly, Ring, float, ring)
BUFFER(3, readonly, State, uint, state)
BUFFER(4, writeonly, Y, float, y)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(Weight, weight)
    ADDRESS(Ring, ring)
    ADDRESS(State, state)
    ADDRESS(Y, y)
    uint key_heads;
    uint value_heads;
PUSH_END

#define VALUES ((HEAD_DIM + SUBGROUP_SIZE - 1) / SUBGROUP_SIZE)

float input_of(int token, uint channel, uint channels, uint position) {
    if (token >= 0) return x.data[token * channels + channel];
    const int place = int(position) + token;
    return place < 0 ? 0.0 : ring.data[ring_row(place, channels) + channel];
}

void kernel() {
    const uint lane = gl_LocalInvocationIndex, head = gl_WorkGroupID.x;
    const int token = int(gl_WorkGroupID.y);
    const uint channels = (2 * key_heads + value_heads) * HEAD_DIM, position = state.data[STATE_POSITION];
    float values[VALUES];
    float squares = 0.0;
    [[unroll]] for (uint n = 0; n < VALUES; ++n) {
        const uint i = lane + n * SUBGROUP_SIZE, channel = head * HEAD_DIM + i;
        values[n] = 0.0;
        if (i < HEAD_DIM) {
            const vec4 inputs = vec4(
                input_of(token - 3, channel, channels, position), input_of(token - 2, channel, channels, position),
                input_of(token - 1, channel, channels, position), x.data[token * channels + channel]);
            values[n] = conv_silu(weight.data[channel], inputs);
        }
        squares = fma(values[n], values[n], squares);
    }
    const bool is_value = head >= 2 * key_heads;
    const float scale = is_value ? 1.0 : l2_scale(subgroup_sum(squares), head < key_heads);
    [[unroll]] for (uint n = 0; n < VALUES; ++n) {
        const uint i = lane + n * SUBGROUP_SIZE;
        if (i < HEAD_DIM) y.data[token * channels + head * HEAD_DIM + i] = values[n] * scale;
    }
}

#include "main.glsl"
