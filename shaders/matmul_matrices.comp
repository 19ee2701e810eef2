#version 460
// Y[t][r] = sum of W[r][c] X[t][c], or += with ADD, or with BIAS that and bias[r], by cooperative matrices: float16
// in, float32 sums. ROWS rows by TOKENS tokens a workgroup, 32 columns at a time through shared memory, where weights
// arrive as float16 times WEIGHT_FACTOR; the next columns are on their way while these are multiplied. X comes as
// to_float16.comp leaves it. A result's order of summation is always the same.
//
// MATRIX_M, MATRIX_N, MATRIX_K: a matrix's rows, tokens and columns, as the device has them. A workgroup is
// SUBGROUPS_DOWN by SUBGROUPS_ACROSS subgroups, each with its part of the rows and tokens.
#extension GL_KHR_cooperative_matrix : require
#extension GL_KHR_memory_scope_semantics : require
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_EXT_shader_explicit_arithmetic_types_float16 : require
#include "binding.glsl"
#include "weight_type.glsl"
#include "float16.glsl"

#define GROUP (SUBGROUPS_DOWN * SUBGROUPS_ACROSS * SUBGROUP_SIZE)
layout(local_size_x = GROUP) in;

BUFFER(0, readonly, Quants, QUANT_ELEMENT, quants)
BUFFER(1, readonly, Scales, SCALE_ELEMENT, scales)
BUFFER(2, readonly, X, uvec4, x)
BUFFER(3, readonly, Factors, float, factors)
BUFFER(4, READWRITE, Y, float, y)
BUFFER(5, readonly, Bias, float, bias)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(X, x)
    ADDRESS(Factors, factors)
    ADDRESS(Y, y)
    ADDRESS(Bias, bias)
    uint rows;
    uint cols;
    uint tokens;
PUSH_END

#define QUANT(base, i) quants.data[i]
#define SCALE(base, i) SCALE_WORD(scales.data, i)
#define SCALE_VECTOR(base, i) scales.data[i]
#include "dequant.glsl"
#include "float16_weights.glsl"

// 16 bytes hold 8 columns; one more a row of a tile than it has, so that rows start in different banks. Of weights there
// are two tiles: the next one is made while this one is multiplied.
#define W_PITCH 5u
#define X_PITCH (4u * X_PARTS + 1u)
shared uvec4 tile_w[2u * ROWS * W_PITCH];
shared uvec4 tile_x[TOKENS * X_PITCH];
shared float staged[SUBGROUPS_DOWN * SUBGROUPS_ACROSS * MATRIX_M * MATRIX_N];

// what an invocation fetches of 32 columns: half blocks of weights, and units of 16 bytes of x
#define HALVES (2 * ROWS / GROUP)
#define X_UNITS (4 * X_PARTS * TOKENS / GROUP)
#if UNITS > 1
#define HALF_UNITS (UNITS / 2)
#else
#define HALF_UNITS 1
#endif
// blocks whose scales are in the same words
#define SCALES_LAST (STEP == 8u ? (SECOND_BYTES == 0u ? 8u : 2u) : (FIRST_BYTES == 0u ? 1u : 4u / max(FIRST_BYTES, 1u)))
QUANT_ELEMENT units[HALVES][HALF_UNITS];
uvec2 high[HALVES];
uvec4 words[HALVES];
uvec4 x_units[X_UNITS];

void fetch_w(uint block, uint blocks, uint first_row) {
    [[unroll]] for (uint i = 0u; i < HALVES; ++i) {
        const uint item = i * GROUP + gl_LocalInvocationIndex, side = item % 2u;
        const RowBase base = row_base(min(first_row + item / 2u, rows - 1u), blocks, 0u);
        [[unroll]] for (uint u = 0u; u < HALF_UNITS; ++u) {
#if UNITS > 1
            units[i][u] = QUANT(base, unit_index(base, block * UNITS + side * HALF_UNITS + u));
#else
            units[i][u] = QUANT(base, unit_index(base, block));
#endif
        }
        high[i] = load_high(base, block);
        if (block % SCALES_LAST == 0u) words[i] = load_scales(base, block);
    }
}

void put_w(uint block) {
    [[unroll]] for (uint i = 0u; i < HALVES; ++i) {
        const uint item = i * GROUP + gl_LocalInvocationIndex, side = item % 2u;
        const vec2 scale = scale_of(words[i], block / STEP, block, side) * WEIGHT_FACTOR;
        uvec2 quads[4];
        [[unroll]] for (uint q = 0u; q < 4u; ++q) quads[q] = HALF_QUAD(units[i], high[i], scale, side, q);
        const uint at = (block % 2u * ROWS + item / 2u) * W_PITCH + side * 2u;
        tile_w[at] = uvec4(quads[0], quads[1]);
        tile_w[at + 1u] = uvec4(quads[2], quads[3]);
    }
}

void fetch_x(uint block, uint blocks, uint first_token) {
    [[unroll]] for (uint i = 0u; i < X_UNITS; ++i) {
        const uint item = i * GROUP + gl_LocalInvocationIndex;
        const uint token = min(first_token + item / (4u * X_PARTS), tokens - 1u);
        x_units[i] = x.data[(token * blocks + block) * (4u * X_PARTS) + item % (4u * X_PARTS)];
    }
}

void put_x() {
    [[unroll]] for (uint i = 0u; i < X_UNITS; ++i) {
        const uint item = i * GROUP + gl_LocalInvocationIndex;
        tile_x[item / (4u * X_PARTS) * X_PITCH + item % (4u * X_PARTS)] = x_units[i];
    }
}

#define DOWN (ROWS / SUBGROUPS_DOWN / MATRIX_M)  // a subgroup's matrices
#define ACROSS (TOKENS / SUBGROUPS_ACROSS / MATRIX_N)

void kernel() {
    const uint blocks = (cols + 31u) / 32u;
    const uint first_token = gl_WorkGroupID.x * TOKENS, first_row = gl_WorkGroupID.y * ROWS;
    const uint down = gl_SubgroupID % SUBGROUPS_DOWN * DOWN * MATRIX_M;
    const uint across = gl_SubgroupID / SUBGROUPS_DOWN * ACROSS * MATRIX_N;
    coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator> sums[DOWN][ACROSS];
    [[unroll]] for (uint r = 0u; r < DOWN; ++r) {
        [[unroll]] for (uint t = 0u; t < ACROSS; ++t)
            sums[r][t] = coopmat<float, gl_ScopeSubgroup, MATRIX_M, MATRIX_N, gl_MatrixUseAccumulator>(0.0);
    }
    const uint last = blocks - 1u;
    fetch_w(0u, blocks, first_row);
    fetch_x(0u, blocks, first_token);
    put_w(0u);
    put_x();
    fetch_w(min(1u, last), blocks, first_row);
    barrier();
    // The last rounds fetch and make what nobody needs, since a branch would keep compilers from mixing it with products.
    for (uint block = 0u; block < blocks; ++block) {
        fetch_x(min(block + 1u, last), blocks, first_token);
        const uint w_at = (block % 2u * ROWS + down) * W_PITCH, x_at = across * X_PITCH;
        [[unroll]] for (uint k = 0u; k < 32u; k += MATRIX_K) {
            coopmat<float16_t, gl_ScopeSubgroup, MATRIX_M, MATRIX_K, gl_MatrixUseA> w[DOWN];
            [[unroll]] for (uint r = 0u; r < DOWN; ++r)
                coopMatLoad(w[r], tile_w, w_at + r * MATRIX_M * W_PITCH + k / 8u, W_PITCH, gl_CooperativeMatrixLayoutRowMajor);
            [[unroll]] for (uint t = 0u; t < ACROSS; ++t) {
                [[unroll]] for (uint part = 0u; part < X_PARTS; ++part) {
                    coopmat<float16_t, gl_ScopeSubgroup, MATRIX_K, MATRIX_N, gl_MatrixUseB> v;
                    const uint at = x_at + t * MATRIX_N * X_PITCH + part * 4u + k / 8u;
                    coopMatLoad(v, tile_x, at, X_PITCH, gl_CooperativeMatrixLayoutColumnMajor);
                    [[unroll]] for (uint r = 0u; r < DOWN; ++r) sums[r][t] = coopMatMulAdd(w[r], v, sums[r][t]);
                }
            }
            if (k == 0u) {
                put_w(block + 1u);
                fetch_w(min(block + 2u, last), blocks, first_row);
            }
        }
        barrier();
        put_x();
        barrier();
    }
    const uint stage = gl_SubgroupID * MATRIX_M * MATRIX_N;
    [[unroll]] for (uint t = 0u; t < ACROSS; ++t) {
        [[unroll]] for (uint r = 0u; r < DOWN; ++r) {
            coopMatStore(sums[r][t], staged, stage, MATRIX_M, gl_CooperativeMatrixLayoutColumnMajor);
            subgroupMemoryBarrierShared();
            subgroupBarrier();
            [[unroll]] for (uint i = 0u; i < MATRIX_M * MATRIX_N; i += SUBGROUP_SIZE) {
                const uint item = i + gl_SubgroupInvocationID;
                const uint token = first_token + across + t * MATRIX_N + item / MATRIX_M;
                const uint row = first_row + down + r * MATRIX_M + item % MATRIX_M;
                if (token < tokens && row < rows) {
                    const uint at = token * rows + row;
                    precise const float sum = staged[stage + item] * factors.data[token];
#ifdef ADD
                    y.data[at] += sum;
#elif defined(BIAS)
                    y.data[at] = sum + bias.data[row];
#else
                    y.data[at] = sum;
#endif
                }
            }
            subgroupBarrier();
        }
    }
}

#include "main.glsl"
