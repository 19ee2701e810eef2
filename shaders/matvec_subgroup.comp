#version 460
// y = W x, or y += W x with ADD, on GPUs: SUBGROUPS subgroups a workgroup, ROWS rows a subgroup.
#include "binding.glsl"

layout(local_size_x = SUBGROUP_SIZE * SUBGROUPS) in;

BUFFER(0, readonly, Quants, uvec4, quants)
BUFFER(1, readonly, Scales, uint, scales)
BUFFER(2, readonly, X, vec4, x)
BUFFER(3, READWRITE, Y, float, y)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(X, x)
    ADDRESS(Y, y)
    uint rows;
    uint cols;
PUSH_END

#define QUANT(base, i) quants.data[i]
#define SCALE(base, i) scales.data[i]
#include "dequant.glsl"
#include "matvec_subgroup.glsl"

void kernel() {
    const uint lane = LANE;
    const uint blocks = (cols + 31u) / 32u;
    const uint workgroup = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uint first = (workgroup * SUBGROUPS + gl_LocalInvocationIndex / SUBGROUP_SIZE) * ROWS;
    RowBase bases[ROWS];
    float sums[ROWS];
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        bases[r] = row_base(min(first + r, rows - 1u), blocks, 0u);
        sums[r] = 0.0;
    }
    for (uint unit = lane; unit < blocks * UNITS; unit += SUBGROUP_SIZE) {
        const Cover cover = unit_cover(bases[0], unit);
        vec4 xs[UNIT_QUADS];
        float totals[UNIT_QUADS];
        LOAD_X(xs, totals, cover)
        [[unroll]] for (uint r = 0u; r < ROWS; ++r) sums[r] = add_unit(sums[r], bases[r], unit, cover, xs, totals);
    }
    [[unroll]] for (uint r = 0u; r < ROWS; ++r) {
        const float total = lanes_total(sums[r]);
        const uint row = first + r;
        if (lane == r % SUBGROUP_SIZE && row < rows) {
#ifdef ADD
            y.data[row] += total;
#else
            y.data[row] = total;
#endif
        }
    }
}

#include "main.glsl"
