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
BUFFER(2, FIXED, X, vec4, x)
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

shared uint history[HISTORY_IDS];
shared bool keep_keys;
#define PREPARE_END \
    if (gl_LocalInvocationIndex == 0u) keep_keys = uintBitsToFloat(step_params.data[STEP_TEMPERATURE]) > 0.0; \
    if (penalty != 1.0) { \
        for (uint i = gl_LocalInvocationIndex; i < HISTORY_IDS; i += GROUP) history[i] = state.data[STATE_HISTORY + i]; \
    }

#include "row_products.glsl"

void kernel() {
    const uint t = gl_LocalInvocationIndex, lane = TEAM_LANE;
    const uint part = FIRST_TILE(gl_WorkGroupID.x), parts = gl_NumWorkGroups.x * TEAMS;  // one a team
    const float penalty = uintBitsToFloat(step_params.data[STEP_REPEAT_PENALTY]);
    uint best_key = 0u, best_id = NO_ID;
    BEGIN_TILES
        if (has_row) {
            const uint id = tile * ROWS + OUT_ROW;
            float logit = row_total(OUT_ROW);
            y.data[id] = logit;
            if (penalty != 1.0) {
                bool repeated = false;
                for (uint i = 0u; i < HISTORY_IDS; ++i) repeated = repeated || history[i] == id;
                if (repeated) logit = logit > 0.0 ? logit / penalty : logit * penalty;
            }
            const uint key = key_of(logit);
            if (keep_keys) scratch.data[id] = key;
            if (ahead(key, id, best_key, best_id)) {
                best_key = key;
                best_id = id;
            }
        }
    END_TILES
    if (gl_WorkGroupID.x + 1u == gl_NumWorkGroups.x) {  // the keys that pad the vocabulary, and a part that pairs the last
        if (keep_keys) {
            for (uint id = rows + t; id < padded; id += GROUP) scratch.data[id] = KEY_NAN;
        }
        if (t < 2u) scratch.data[padded + parts * 2u + t] = t == 0u ? 0u : NO_ID;
    }
    const uint top = subgroupMax(best_key);
    best_id = subgroupMin(best_key == top ? best_id : NO_ID);
    if (lane == 0u) {
        scratch.data[padded + part * 2u] = top;
        scratch.data[padded + part * 2u + 1u] = best_id;
    }
}

#include "main.glsl"
