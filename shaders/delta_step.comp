#version 460
// A Gated DeltaNet layer's decode token from its projections to the gated norm, on GPUs, in one dispatch: conv.comp,
// delta_groups.comp and gated_norm.comp with the same arithmetic. A workgroup has a value head, whose columns its
// invocations take in turns: in the persistent mode LANES may be more than they need, or fewer than a head's elements. No
// other workgroup uses the row of the ring that this token writes.
#include "binding.glsl"
#include "state.glsl"
#include "delta.glsl"

layout(local_size_x = LANES) in;

BUFFER(0, readonly, X, float, x)
BUFFER(1, readonly, ConvWeight, vec4, conv_weight)
BUFFER(2, readonly, Alpha, float, alpha)
BUFFER(3, readonly, Beta, float, beta)
BUFFER(4, readonly, Bias, float, bias)
BUFFER(5, readonly, A, float, a)
BUFFER(6, readonly, Z, float, z)
BUFFER(7, readonly, Weight, float, weight)
BUFFER(8, READWRITE, Ring, float, ring)
BUFFER(9, READWRITE, Delta, vec4, delta)
BUFFER(10, readonly, State, uint, state)
BUFFER(11, writeonly, Result, float, result)
PUSH_BEGIN
    ADDRESS(X, x)
    ADDRESS(ConvWeight, conv_weight)
    ADDRESS(Alpha, alpha)
    ADDRESS(Beta, beta)
    ADDRESS(Bias, bias)
    ADDRESS(A, a)
    ADDRESS(Z, z)
    ADDRESS(Weight, weight)
    ADDRESS(Ring, ring)
    ADDRESS(Delta, delta)
    ADDRESS(State, state)
    ADDRESS(Result, result)
    uint key_heads;
    uint value_heads;
    float eps;
PUSH_END

#define HEAD_QUADS (HEAD_DIM / 4)
#define COLUMNS (LANES / COLUMN_LANES)  // at once
#define TURNS ((HEAD_DIM + COLUMNS - 1) / COLUMNS)
// the same for all of a subgroup: heads are multiples of 32
#define HAS_COLUMN(in_head) (HEAD_DIM % COLUMNS == 0 || (in_head) < HEAD_DIM)
#define ELEMENTS ((HEAD_DIM + LANES - 1) / LANES)  // of the result, an invocation
shared vec4 heads[3 * HEAD_QUADS];  // this head's query, key and value as the convolution leaves them
shared float outputs[HEAD_DIM];
float query_scale, key_scale;
#define LANE (gl_LocalInvocationIndex % COLUMN_LANES)
#define QUERY(m) (heads[LANE + (m) * COLUMN_LANES] * query_scale)
#define KEY(m) (heads[HEAD_QUADS + LANE + (m) * COLUMN_LANES] * key_scale)
#include "delta_column.glsl"
#include "delta_ring.glsl"

// the input of so many tokens before this one, out of the ring's rows
float input_before(uint tokens, vec4 rows, uint position) {
    return position < tokens ? 0.0 : rows[(position - tokens) % CONV_TOKENS];
}

// the sum of squares of a head's elements in shared memory, known to every invocation
#define SQUARES(squares, element) \
    float squares = 0.0; \
    for (uint i = gl_LocalInvocationIndex % SUBGROUP_SIZE; i < HEAD_DIM; i += SUBGROUP_SIZE) \
        squares = fma(element, element, squares); \
    squares = subgroup_sum(squares);

void kernel() {
    const uint t = gl_LocalInvocationIndex, head = gl_WorkGroupID.x, key_head = head % key_heads;
    const uint first = t / COLUMN_LANES, head_columns = head * HEAD_DIM;
    // All is loaded at once, what depends on the position (the ring's rows) without waiting for that.
    const uint position = state.data[STATE_POSITION];
    const bool done = state.data[STATE_DONE] != 0u;
    vec4 before[TURNS * COLUMN_QUADS];
    [[unroll]] for (uint n = 0; n < TURNS * COLUMN_QUADS; ++n) {
        const uint in_head = first + n / COLUMN_QUADS * COLUMNS;
        if (!HAS_COLUMN(in_head)) break;
        before[n] = delta.data[(head_columns + in_head) * HEAD_QUADS + LANE + n % COLUMN_QUADS * COLUMN_LANES];
    }
    float z_now[ELEMENTS], norm_weight[ELEMENTS];
    [[unroll]] for (uint n = 0; n < ELEMENTS; ++n) {
        const uint i = n * LANES + t;
        if (i < HEAD_DIM) {
            z_now[n] = z.data[head_columns + i];
            norm_weight[n] = weight.data[i];
        }
    }
    const float kept = decay(a.data[head], alpha.data[head], bias.data[head]), write = sigmoid(beta.data[head]);
    [[unroll]] for (uint item = 0; item < (3 * HEAD_DIM + LANES - 1) / LANES; ++item) {
        const uint i = item * LANES + t, part = i / HEAD_DIM;
        if (i >= 3 * HEAD_DIM) break;
        const uint channel = (part == 2 ? 2 * key_heads + head : part * key_heads + key_head) * HEAD_DIM + i % HEAD_DIM;
        const vec4 taps = conv_weight.data[channel];
        const float newest = x.data[channel];
        vec4 rows;
        [[unroll]] for (uint row = 0; row < CONV_TOKENS; ++row) rows[row] = ring.data[row * channels() + channel];
        const vec4 inputs = vec4(
            input_before(3, rows, position), input_before(2, rows, position), input_before(1, rows, position), newest);
        heads[i / 4][i % 4] = conv_silu(taps, inputs);
        if (!done && (part == 2 || head < key_heads)) ring.data[ring_row(position, channels()) + channel] = newest;
    }
    barrier();
    SQUARES(query_squares, heads[i / 4][i % 4])
    SQUARES(key_squares, heads[HEAD_QUADS + i / 4][i % 4])
    query_scale = l2_scale(query_squares, true);
    key_scale = l2_scale(key_squares, false);
    [[unroll]] for (uint turn = 0; turn < TURNS; ++turn) {
        const uint in_head = first + turn * COLUMNS;
        if (!HAS_COLUMN(in_head)) break;
        [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) {
            column[m] = position == 0 ? vec4(0.0) : before[turn * COLUMN_QUADS + m];
        }
        const float o = column_step(heads[2 * HEAD_QUADS + in_head / 4][in_head % 4], kept, write);
        if (LANE == 0) outputs[in_head] = o;
        if (done) continue;
        const uint column_at = (head_columns + in_head) * HEAD_QUADS + LANE;
        [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) delta.data[column_at + m * COLUMN_LANES] = column[m];
    }
    barrier();
    SQUARES(squares, outputs[i])
    [[unroll]] for (uint n = 0; n < ELEMENTS; ++n) {
        const uint i = n * LANES + t;
        if (i < HEAD_DIM) result.data[head_columns + i] = gated_norm(outputs[i], squares, eps, norm_weight[n], z_now[n]);
    }
}

#include "main.glsl"
