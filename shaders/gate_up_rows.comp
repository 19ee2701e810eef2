#version 460
// y = silu(G x) * (U x), with GELU gelu(G x) * (U x), on software devices: eight rows of each a workgroup, with matvec_rows' arithmetic.
#include "binding.glsl"
#include "activation.glsl"
#include "weight_type.glsl"

layout(local_size_x = 8) in;

BUFFER(0, readonly, GateQuants, QUANT_ELEMENT, gate_quants)
BUFFER(1, readonly, GateScales, uint, gate_scales)
BUFFER(2, readonly, UpQuants, QUANT_ELEMENT, up_quants)
BUFFER(3, readonly, UpScales, uint, up_scales)
BUFFER(4, readonly, X, float, x)
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
#define QUANT_WORD(base, i, j) (base.side == 0u ? gate_quants.data[i][j] : up_quants.data[i][j])
#define SCALE(base, i) (base.side == 0u ? gate_scales.data[i] : up_scales.data[i])
#include "dequant.glsl"
#include "matvec_rows.glsl"

void kernel() {
    const uint lane = LANE;
    const uint blocks = (cols + 31u) / 32u;
    const uint group = min(gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x, (rows - 1u) / 8u);
    float gates[8], ups[8];
    [[unroll]] for (uint r = 0u; r < 8u; ++r) gates[r] = ups[r] = 0.0;
    for (uint block = 0u; block < blocks; ++block) {
        const LaneX v = lane_x(block, lane);
        [[unroll]] for (uint r = 0u; r < 8u; ++r)
            gates[r] = add_block(gates[r], group_base(group, r, blocks, 0u), block, lane, v);
        [[unroll]] for (uint r = 0u; r < 8u; ++r)
            ups[r] = add_block(ups[r], group_base(group, r, blocks, 1u), block, lane, v);
    }
    const float gate = lane_total(gates, lane), up = lane_total(ups, lane);
    const uint row = group * 8u + lane;
    if (row < rows) y.data[row] = ACTIVATE(gate) * up;
}

#include "main.glsl"
