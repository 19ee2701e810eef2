#version 460
// The LM head on GPUs with sample_scan.comp at its end: logits, their keys after the repetition penalty (where sampling
// needs them: not at temperature 0), and each team's largest. matvec_groups' arithmetic. With NORM x is first
// RMS-normed.
#include "binding.glsl"
#include "order.glsl"
#include "state.glsl"
#include "step.glsl"
#include "weight_type.glsl"
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x = TEAMS * LANES) in;

BUFFER(0, FIXED, Quants, QUANT_ELEMENT, quants)
BUFFER(1, FIXED, Scales, SCALE_ELEMENT, scales)
BUFFER(2, AWAITED, X, vec4, x)
BUFFER(3, FIXED, Norm, vec4, norm)
BUFFER(4, writeonly, Y, float, y)
BUFFER(5, FIXED, Step, uint, step_params)
BUFFER(6, FIXED, State, uint, state)
BUFFER(7, writeonly, Scratch, uint, scratch)
PUSH_BEGIN
    ADDRESS(Quants, quants)
    ADDRESS(Scales, scales)
    ADDRESS(X, x)
    ADDRESS(Norm, norm)
    ADDRESS(Y, y)
    ADDRESS(Step, step_params)
    ADDRESS(State, state)
    ADDRESS(Scratch, scratch)
    uint rows;
    float inverse_width;
    float eps;
    uint padded;
PUSH_END

#define QUANT(base, i) quants.data[i]
#define SCALE(base, i) SCALE_WORD(scales.data, i)
#define SCALE_VECTOR(base, i) scales.data[i]
#define SUMS ROWS
#include "dequant.glsl"

#define ROW_OF(tile, i) min((tile) * ROWS + (i), rows - 1u)

shared bool keep_keys;
#define PREPARE_END \
    if (gl_LocalInvocationIndex == 0u) keep_keys = uintBitsToFloat(step_params.data[STEP_TEMPERATURE]) > 0.0; \
    if (penalty != 1.0) { \
        for (uint i = gl_LocalInvocationIndex; i < HISTORY_IDS; i += GROUP) history[i] = state.data[STATE_HISTORY + i]; \
    }

#include "row_products.glsl"
#include "head_end.glsl"

void kernel() {
    penalty = uintBitsToFloat(step_params.data[STEP_REPEAT_PENALTY]);
    best_key = 0u;
    best_id = NO_ID;
    BEGIN_TILES
        if (has_row) end_head_row(tile * ROWS + OUT_ROW, row_total(OUT_ROW));
    END_TILES
    end_head(FIRST_TILE(gl_WorkGroupID.x), gl_NumWorkGroups.x * TEAMS, TEAM_LANE);
}

#include "main.glsl"
