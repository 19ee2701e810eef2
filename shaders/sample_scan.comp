#version 460
// Logits to order-preserving keys after the repetition penalty, and the largest of each part of the vocabulary.
// The keys are written only where sampling needs them: not at temperature 0.
#include "binding.glsl"
#include "order.glsl"
#include "sample.glsl"
#include "state.glsl"
#include "step.glsl"
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require

layout(local_size_x = SCAN_LANES) in;

BUFFER(0, readonly, Logits, float, logits)
BUFFER(1, readonly, Step, uint, step_params)
BUFFER(2, readonly, State, uint, state)
BUFFER(3, writeonly, Scratch, uint, scratch)
PUSH_BEGIN
    ADDRESS(Logits, logits)
    ADDRESS(Step, step_params)
    ADDRESS(State, state)
    ADDRESS(Scratch, scratch)
    uint vocab;
    uint padded;
PUSH_END

shared uint penalised[GROUP_IDS / 32u];  // one bit an id: it is in the history

void kernel() {
    const float penalty = uintBitsToFloat(step_params.data[STEP_REPEAT_PENALTY]);
    const bool keep_keys = uintBitsToFloat(step_params.data[STEP_TEMPERATURE]) > 0.0;
    const uint lane = gl_LocalInvocationIndex;
    const uint base = gl_WorkGroupID.x * GROUP_IDS;
    if (penalty != 1.0) {
        for (uint i = lane; i < GROUP_IDS / 32u; i += SCAN_LANES) penalised[i] = 0u;
        barrier();
        for (uint i = lane; i < HISTORY_IDS; i += SCAN_LANES) {
            const uint offset = state.data[STATE_HISTORY + i] - base;
            if (offset < GROUP_IDS) atomicOr(penalised[offset / 32u], 1u << offset % 32u);
        }
        barrier();
    }
    uint best_key = 0u;
    uint best_id = NO_ID;
    [[unroll]] for (uint j = 0u; j < LANE_IDS; ++j) {
        const uint id = base + lane + j * SCAN_LANES;
        uint key = KEY_NAN;
        if (id < vocab) {
            float logit = logits.data[id];
            if (penalty != 1.0) {
                const uint offset = id - base;
                if ((penalised[offset / 32u] >> offset % 32u & 1u) != 0u) {
                    logit = logit > 0.0 ? logit / penalty : logit * penalty;
                }
            }
            key = key_of(logit);
            if (ahead(key, id, best_key, best_id)) {
                best_key = key;
                best_id = id;
            }
        }
        if (keep_keys) scratch.data[id] = key;
    }
#if PART_LANES > 1
    const uint part_key = subgroupMax(best_key);
    best_id = subgroupMin(best_key == part_key ? best_id : NO_ID);
    best_key = part_key;
#endif
    if (lane % PART_LANES == 0u) {
        const uint part = padded + (gl_WorkGroupID.x * SCAN_LANES + lane) / PART_LANES * 2u;
        scratch.data[part] = best_key;
        scratch.data[part + 1u] = best_id;
    }
}

#include "main.glsl"
