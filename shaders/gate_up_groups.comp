#version 460
// y = silu(G x) * (U x), with GELU gelu(G x) * (U x), on GPUs: tiles of ROWS rows of each, with matvec_groups' arithmetic.
// With NORM x is first RMS-normed.
#include "binding.glsl"
#include "activation.glsl"
#include "weight_type.glsl"

layout(local_size_x = TEAMS * LANES) in;

BUFFER(0, FIXED, GateQuants, QUANT_ELEMENT, gate_quants)
BUFFER(1, FIXED, GateScales, SCALE_ELEMENT, gate_scales)
BUFFER(2, FIXED, UpQuants, QUANT_ELEMENT, up_quants)
BUFFER(3, FIXED, UpScales, SCALE_ELEMENT, up_scales)
BUFFER(4, AWAITED, X, vec4, x)
BUFFER(5, FIXED, Norm, vec4, norm)
BUFFER(6, writeonly, Y, float, y)
PUSH_BEGIN
    ADDRESS(GateQuants, gate_quants)
    ADDRESS(GateScales, gate_scales)
    ADDRESS(UpQuants, up_quants)
    ADDRESS(UpScales, up_scales)
    ADDRESS(X, x)
    ADDRESS(Norm, norm)
    ADDRESS(Y, y)
    uint rows;
    float inverse_width;
    float eps;
PUSH_END

#define QUANT(base, i) (base.side == 0u ? gate_quants.data[i] : up_quants.data[i])
#define SCALE(base, i) (base.side == 0u ? SCALE_WORD(gate_scales.data, i) : SCALE_WORD(up_scales.data, i))
#define SCALE_VECTOR(base, i) (base.side == 0u ? gate_scales.data[i] : up_scales.data[i])
#define SUMS (2 * ROWS)
#include "dequant.glsl"
#include "row_products.glsl"

#define ROW_OF(tile, i) min((tile) * ROWS + (i) % ROWS, rows - 1u)

void kernel() {
    BEGIN_TILES
        if (has_row) y.data[tile * ROWS + OUT_ROW] = ACTIVATE(row_total(OUT_ROW)) * row_total(ROWS + OUT_ROW);
    END_TILES
}

#include "main.glsl"
