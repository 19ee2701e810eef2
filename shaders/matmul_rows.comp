#version 460
// Y[t][r] = sum of W[r][c] X[t][c], or += with ADD, or with BIAS that and bias[r], on software devices: a row a lane,
// TOKENS tokens an invocation. A block is unpacked once for all its tokens; x has the same address in all lanes, which
// makes it one broadcast.
#include "binding.glsl"
#include "weight_type.glsl"

layout(local_size_x = 8) in;

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
#define QUANT_WORD(base, i, j) quants.data[i][j]
#define SCALE(base, i) scales.data[i]
#include "dequant.glsl"

void kernel() {
    const uint quads = cols / 4u, blocks = (cols + 31u) / 32u;
    const uint first = gl_WorkGroupID.y * TOKENS;
    const RowBase base = group_base(gl_WorkGroupID.x, gl_LocalInvocationIndex, blocks, 0u);
    float sums[TOKENS];
    uint at[TOKENS];
    [[unroll]] for (uint t = 0u; t < TOKENS; ++t) {
        sums[t] = 0.0;
        at[t] = min(first + t, tokens - 1u) * quads;
    }
    for (uint block = 0u; block < blocks; ++block) {
        QUANT_ELEMENT units[UNITS];
        [[unroll]] for (uint unit = 0u; unit < UNITS; ++unit) units[unit] = QUANT(base, unit_index(base, block * UNITS + unit));
        const uvec2 high = load_high(base, block);
        const vec2 low_scale = block_scale(base, block, 0u), high_scale = block_scale(base, block, 1u);
        [[unroll]] for (uint i = 0u; i < 8u; ++i) {
            const uint quad = block * 8u + i;
#if defined(TAIL) && TAIL
            if (quad >= quads) break;
#endif
            const vec4 q = unit_quad(units[i / UNIT_QUADS], high, i % UNIT_QUADS);
            const vec4 w = quad_weights(q, i < 4u ? low_scale : high_scale);
            [[unroll]] for (uint t = 0u; t < TOKENS; ++t) {
                const vec4 v = x.data[at[t] + quad];
                sums[t] = fma(w.w, v.w, fma(w.z, v.z, fma(w.y, v.y, fma(w.x, v.x, sums[t]))));
            }
        }
    }
    const uint row = gl_WorkGroupID.x * 8u + gl_LocalInvocationIndex;
    if (row >= rows) return;
    [[unroll]] for (uint t = 0u; t < TOKENS; ++t) {
        if (first + t < tokens) {
#ifdef ADD
            y.data[(first + t) * rows + row] += sums[t];
#elif defined(BIAS)
            y.data[(first + t) * rows + row] = sums[t] + bias.data[row];
#else
            y.data[(first + t) * rows + row] = sums[t];
#endif
        }
    }
}

#include "main.glsl"
