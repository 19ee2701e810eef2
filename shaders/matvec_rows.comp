#version 460
// y = W x, y += W x with ADD, or y = W x + bias with BIAS, on software devices: OCTETS groups of eight rows a workgroup.
#include "binding.glsl"
#include "weight_type.glsl"

layout(local_size_x = 8) in;

BUFFER(0, readonly, Quants, QUANT_ELEMENT, quants)
BUFFER(1, readonly, Scales, uint, scales)
BUFFER(2, readonly, X, float, x)
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
PUSH_END

#define QUANT(base, i) quants.data[i]
#define QUANT_WORD(base, i, j) quants.data[i][j]
#define SCALE(base, i) scales.data[i]
#include "dequant.glsl"
#include "matvec_rows.glsl"

void kernel() {
    const uint lane = LANE;
    const uint blocks = (cols + 31u) / 32u;
    const uint first = (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x) * OCTETS;
    const uint last = (rows - 1u) / 8u;
    float sums[OCTETS][8];
    [[unroll]] for (uint k = 0u; k < OCTETS; ++k)
        [[unroll]] for (uint r = 0u; r < 8u; ++r) sums[k][r] = 0.0;
    for (uint block = 0u; block < blocks; ++block) {
        const LaneX v = lane_x(block, lane);
        [[unroll]] for (uint k = 0u; k < OCTETS; ++k) {
            const uint group = min(first + k, last);
            [[unroll]] for (uint r = 0u; r < 8u; ++r)
                sums[k][r] = add_block(sums[k][r], group_base(group, r, blocks, 0u), block, lane, v);
        }
    }
    [[unroll]] for (uint k = 0u; k < OCTETS; ++k) {
        const float total = lane_total(sums[k], lane);
        const uint row = (first + k) * 8u + lane;
        if (row < rows) {
#ifdef ADD
            y.data[row] += total;
#elif defined(BIAS)
            y.data[row] = total + bias.data[row];
#else
            y.data[row] = total;
#endif
        }
    }
}

#include "main.glsl"
