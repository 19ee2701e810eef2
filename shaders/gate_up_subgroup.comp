#version 460
// y = silu(G x) * (U x) on GPUs: ROWS rows of each a subgroup, with matvec_subgroup's arithmetic.
#include "binding.glsl"
#include "activation.glsl"

layout(local_size_x = SUBGROUP_SIZE * SUBGROUPS) in;

BUFFER(0, readonly, GateQuants, uvec4, gate_quants)
BUFFER(1, readonly, GateScales, uint, gate_scales)
BUFFER(2, readonly, UpQuants, uvec4, up_quants)
BUFFER(3, readonly, UpScales, uint, up_scales)
BUFFER(4, readonly, X, vec4, x)
BUFFER(5, writeonly, Y, float, y)
PUSH_BEGIN
    ADDRESS(GateQuants, gate_quants)
    ADDRESS(GateScales, gate_scales)
    ADDRESS(UpQuants, up_quants)
    ADDRESS(UpScales, up_scales)
    ADDRESS(X, x)
    ADDRESS(Y, y)
    uint rows;
    uint cols;
PUSH_END

#define QUANT(base, i) (base.side == 0u ? gate_quants.data[i] : up_quants.data[i])
#define SCALE(base, i) (base.side == 0u ? gate_scales.data[i] : up_scales.data[i])
#include "dequant.glsl"
#include "matvec_subgroup.glsl"

void kernel() {
    const uint lane = LANE;
    const uint blocks = (cols + 31u) / 32u;
    const uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uint first = (workgroup * SUBGROUPS + gl_LocalInvocationIndex / SUBGROUP_SIZE) * ROWS;
    float gates[ROWS], ups[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) gates[r] = ups[r] = 0.0;
    for (uint unit = lane; unit < blocks * UNITS; unit += SUBGROUP_SIZE) {
        const Cover cover = unit_cover(row_base(0u, blocks, 0u), unit);
        vec4 xs[UNIT_QUADS];
        float totals[UNIT_QUADS];
        LOAD_X(xs, totals, cover)
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
            const uint row = min(first + r, rows - 1u);
            gates[r] = add_unit(gates[r], row_base(row, blocks, 0u), unit, cover, xs, totals);
            ups[r] = add_unit(ups[r], row_base(row, blocks, 1u), unit, cover, xs, totals);
        }
    }
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        const float gate = lanes_total(gates[r]), up = lanes_total(ups[r]);
        const uint row = first + r;
        if (lane == r % SUBGROUP_SIZE && row < rows) y.data[row] = silu(gate) * up;
    }
}

#include "main.glsl"
