#version 460
// y = W x, y += W x with ADD, or y = W x + bias with BIAS, on GPUs: tiles of ROWS rows. With NORM x is first RMS-normed.
#include "binding.glsl"
#include "weight_type.glsl"

layout(local_size_x = TEAMS * LANES) in;

BUFFER(0, FIXED, Quants, QUANT_ELEMENT, quants)
BUFFER(1, FIXED, Scales, SCALE_ELEMENT, scales)
BUFFER(2, AWAITED, X, vec4, x)
BUFFER(3, FIXED, Norm, vec4, norm)
BUFFER(4, READWRITE, Y, float, y)
BUFFER(5, FIXED, Bias, float, bias)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(X, x)
    ADDRESS(Norm, norm)
    ADDRESS(Y, y)
    ADDRESS(Bias, bias)
    uint rows;
    float inverse_width;
    float eps;
PUSH_END

#define QUANT(base, i) quants.data[i]
#define SCALE(base, i) SCALE_WORD(scales.data, i)
#define SCALE_VECTOR(base, i) scales.data[i]
#define SUMS ROWS
#include "dequant.glsl"

#define ROW_OF(tile, i) min((tile) * ROWS + (i), rows - 1u)

#if defined(ADD) || defined(BIAS)
#define PREFETCHED  // what the product is added to
#endif
#ifdef ADD
#define PREFETCH(tile) before = y.data[ROW_OF(tile, OUT_ROW)];
#elif defined(BIAS)
#define PREFETCH(tile) before = bias.data[ROW_OF(tile, OUT_ROW)];
#endif
#include "row_products.glsl"

void kernel() {
#ifdef PREFETCHED
    float before = 0.0;
#endif
    BEGIN_TILES
        if (has_row) {
            const float result = row_total(OUT_ROW);
#ifdef PREFETCHED
            y.data[tile * ROWS + OUT_ROW] = before + result;
#else
            y.data[tile * ROWS + OUT_ROW] = result;
#endif
        }
    END_TILES
}

#include "main.glsl"
