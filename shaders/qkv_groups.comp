#version 460
// The stacked Q, K and V projection on GPUs with rope_store.comp at its end: q is turned and written, k (turned) and v
// go to the KV cache; with ROTATED 0 nothing turns. matvec_groups' arithmetic, with BIAS its bias too; a team takes the
// ROWS rows of ROWS / 2 pairs of dimensions. With NORM x is first RMS-normed.
#extension GL_EXT_shader_16bit_storage : require
#include "binding.glsl"
#include "state.glsl"
#include "rope.glsl"
#include "weight_type.glsl"

layout(local_size_x = TEAMS * LANES) in;

BUFFER(0, FIXED, Quants, QUANT_ELEMENT, quants)
BUFFER(1, FIXED, Scales, SCALE_ELEMENT, scales)
BUFFER(2, AWAITED, X, vec4, x)
BUFFER(3, FIXED, Norm, vec4, norm)
BUFFER(4, writeonly, Y, float, y)
BUFFER(5, FIXED, Table, vec2, table)
BUFFER(6, READWRITE, KCache, float16_t, k_cache)
BUFFER(7, READWRITE, VCache, float16_t, v_cache)
BUFFER(8, FIXED, State, uint, state)
BUFFER(9, FIXED, Bias, float, bias)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(X, x)
    ADDRESS(Norm, norm)
    ADDRESS(Y, y)
    ADDRESS(Table, table)
    ADDRESS(KCache, k_cache)
    ADDRESS(VCache, v_cache)
    ADDRESS(State, state)
    ADDRESS(Bias, bias)
    uint rows;
    float inverse_width;
    float eps;
    uint heads;
    uint kv_heads;
    uint context;
PUSH_END

#define QUANT(base, i) quants.data[i]
#define SCALE(base, i) SCALE_WORD(scales.data, i)
#define SCALE_VECTOR(base, i) scales.data[i]
#define SUMS ROWS
#include "dequant.glsl"

#define ROTATED_PAIRS (ROTATED / 2u)
#define PAIR_HEAD(pair) ((pair) / HEAD_PAIRS)
#define PAIR_IN_HEAD(pair) ((pair) % HEAD_PAIRS)
#include "store_pair.glsl"

// row i of the group's: pairs of a head's dimensions one after another, whichever rows they are
uint pair_row(uint item) {
    const uint pair = item / 2u;
    return PAIR_HEAD(pair) * HEAD_DIM + rope_pair(PAIR_IN_HEAD(pair))[item % 2u];
}

// the angle of a pair of dimensions
vec2 load_angle(uint pair, uint position) {
#if ROTATED == 0
    return vec2(0.0);
#else
    return table.data[position * ROTATED_PAIRS + min(PAIR_IN_HEAD(pair), ROTATED_PAIRS - 1u)];
#endif
}

#define ROW_OF(tile, i) pair_row(min((tile) * ROWS + (i), rows - 1u))

#ifdef BIAS
#define LOAD_BIAS(tile) \
    offset = vec2(bias.data[ROW_OF(tile, OUT_ROW)], bias.data[ROW_OF(tile, OUT_ROW + 1u)]);
#else
#define LOAD_BIAS(tile)
#endif

shared uint finished;
#define PREPARE_END if (gl_LocalInvocationIndex == 0u) finished = state.data[STATE_DONE];
#define PREFETCH(tile) \
    angle = load_angle((tile) * (ROWS / 2u) + OUT_ROW / 2u, position); \
    LOAD_BIAS(tile)
#include "row_products.glsl"

void kernel() {
    vec2 angle = vec2(0.0), offset = vec2(0.0);
    const uint position = state.data[STATE_POSITION];
    BEGIN_TILES
        if (has_row && OUT_ROW % 2u == 0u && finished == 0u) {
            vec2 value = vec2(row_total(OUT_ROW), row_total(OUT_ROW + 1u));
#ifdef BIAS
            value += offset;
#endif
            store_pair(value, tile * (ROWS / 2u) + OUT_ROW / 2u, angle, position);
        }
    END_TILES
}

#include "main.glsl"
