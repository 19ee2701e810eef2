#version 460
// out[t] = scale times the dequantised row ids[first + t] of the embedding table; with DECODE one row, that of the
// state's token. The rows here may be a part of the table's: those from ``begin`` on. Others are left as they are.
#include "binding.glsl"
#include "state.glsl"
#include "weight_type.glsl"

layout(local_size_x = 64) in;

BUFFER(0, readonly, Quants, QUANT_ELEMENT, quants)
BUFFER(1, readonly, Scales, uint, scales)
BUFFER(2, readonly, Ids, uint, ids)
BUFFER(3, writeonly, Result, vec4, result)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(Ids, ids)
    ADDRESS(Result, result)
    uint rows;
    uint cols;
    uint first;
    float scale;
    uint begin;
    uint table_rows;
PUSH_END

#define QUANT(base, i) quants.data[i]
#define QUANT_WORD(base, i, j) quants.data[i][j]
#define SCALE(base, i) scales.data[i]
#include "dequant.glsl"

void kernel() {
    const uint quad = gl_GlobalInvocationID.x, token = gl_WorkGroupID.y;
    if (quad >= cols / 4u) return;
#ifdef DECODE
    const uint id = ids.data[STATE_TOKEN];
#else
    const uint id = ids.data[first + token];
#endif
    const uint row = min(id, table_rows - 1u) - begin;
    if (row >= rows) return;
    const RowBase base = row_base(row, (cols + 31u) / 32u, 0u);
    result.data[token * (cols / 4u) + quad] = load_weights(base, quad) * scale;
}

#include "main.glsl"
