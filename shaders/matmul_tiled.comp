#version 460
// Y[t][r] = sum of W[r][c] X[t][c], or += with ADD, or with BIAS that and bias[r], on GPUs: 64 rows by 64 tokens a
// workgroup, 32 columns at a time through shared memory, 4 by 4 results an invocation. A result's order of summation is always the same.
#include "binding.glsl"
#include "weight_type.glsl"

layout(local_size_x = 256) in;

BUFFER(0, readonly, Quants, QUANT_ELEMENT, quants)
BUFFER(1, readonly, Scales, uint, scales)
BUFFER(2, readonly, X, vec4, x)
BUFFER(3, READWRITE, Y, float, y)
BUFFER(4, readonly, Bias, float, bias)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(X, x)
    ADDRESS(Y, y)
    ADDRESS(Bias, bias)
    uint rows;
    uint cols;
    uint tokens;
PUSH_END

#define QUANT(base, i) quants.data[i]
#define SCALE(base, i) scales.data[i]
#include "dequant.glsl"

#define TILE 64u
#define PITCH 17u  // vec4s a column, one more than the tile has: columns start in different banks
shared vec4 tile_w[32 * PITCH];
shared vec4 tile_x[32 * PITCH];

void store_quad(bool weights, uint column, uint item, vec4 v) {
    [[unroll]] for (uint j = 0u; j < 4u; ++j) {
        if (weights) tile_w[(column + j) * PITCH + item / 4u][item % 4u] = v[j];
        else tile_x[(column + j) * PITCH + item / 4u][item % 4u] = v[j];
    }
}

void kernel() {
    const uint quads = cols / 4u, blocks = (cols + 31u) / 32u;
    const uint first_row = gl_WorkGroupID.x * TILE, first_token = gl_WorkGroupID.y * TILE;
    const uint local = gl_LocalInvocationIndex;
    const uint row_quad = local % 16u, token_quad = local / 16u;
    vec4 sums[4];  // one a token, four rows each
    [[unroll]] for (uint t = 0u; t < 4u; ++t) sums[t] = vec4(0.0);
    const uint item = local / 4u;  // the row and the token whose two quads an invocation loads
    const RowBase base = row_base(min(first_row + item, rows - 1u), blocks, 0u);
    const uint token = min(first_token + item, tokens - 1u);
    for (uint block = 0u; block < blocks; ++block) {
        barrier();
        [[unroll]] for (uint k = 0u; k < 2u; ++k) {
            const uint column = local % 4u * 2u + k;
            const uint quad = block * 8u + column;
            store_quad(true, column * 4u, item, load_weights(base, quad));
            store_quad(false, column * 4u, item, quad < quads ? x.data[token * quads + min(quad, quads - 1u)] : vec4(0.0));
        }
        barrier();
        for (uint column = 0u; column < 32u; ++column) {
            const vec4 w = tile_w[column * PITCH + row_quad], v = tile_x[column * PITCH + token_quad];
            [[unroll]] for (uint t = 0u; t < 4u; ++t) sums[t] = fma(w, vec4(v[t]), sums[t]);
        }
    }
    [[unroll]] for (uint t = 0u; t < 4u; ++t) {
        const uint token = first_token + token_quad * 4u + t;
        [[unroll]] for (uint r = 0u; r < 4u; ++r) {
            const uint row = first_row + row_quad * 4u + r;
            if (token < tokens && row < rows) {
#ifdef ADD
                y.data[token * rows + row] += sums[t][r];
#elif defined(BIAS)
                y.data[token * rows + row] = sums[t][r] + bias.data[row];
#else
                y.data[token * rows + row] = sums[t][r];
#endif
            }
        }
    }
}

#include "main.glsl"
