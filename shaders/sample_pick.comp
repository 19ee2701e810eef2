#version 460
// One workgroup chooses the next id from what sample_scan left, and advances the state.
#include "binding.glsl"
#include "order.glsl"
#include "sample.glsl"
#include "state.glsl"
#include "step.glsl"
#include "philox.glsl"
#extension GL_EXT_control_flow_attributes : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_KHR_shader_subgroup_shuffle : require

// A unit is what sums without a barrier: a subgroup, or a lane on a software device.
#ifdef CPU_DEVICE
#define LANES 8
#define UNIT_LANES 1
#else
#define LANES PICK_LANES
#define UNIT_LANES SUBGROUP_SIZE
#endif
#define UNITS (LANES / UNIT_LANES)

layout(local_size_x = LANES) in;

BUFFER(0, readonly, Scratch, uvec4, scratch)
BUFFER(1, readonly, Step, uint, step_params)
BUFFER(2, READWRITE, State, uint, state)
BUFFER(3, writeonly, Readback, uint, readback)
PUSH_BEGIN
    ADDRESS(Scratch, scratch)
    ADDRESS(Step, step_params)
    ADDRESS(State, state)
    ADDRESS(Readback, readback)
    uint padded;
    uint parts;
    uint advance;
PUSH_END

#include "sample_search.glsl"

// The largest key and the lowest id that has it, known to every lane afterwards.
void find_best() {
    uint key = 0u;
    uint id = NO_ID;
    for (uint i = gl_LocalInvocationIndex; i < (parts + 1u) / 2u; i += LANES) {
        const uvec4 two = scratch.data[padded / 4u + i];
        if (ahead(two.x, two.y, key, id)) {
            key = two.x;
            id = two.y;
        }
        if (ahead(two.z, two.w, key, id)) {
            key = two.z;
            id = two.w;
        }
    }
#if UNIT_LANES > 1
    const uint unit_key = subgroupMax(key);
    id = subgroupMin(key == unit_key ? id : NO_ID);
    key = unit_key;
#endif
    const uint unit = gl_LocalInvocationIndex / UNIT_LANES;
    if (gl_LocalInvocationIndex % UNIT_LANES == 0u) unit_counts[unit].xy = uvec2(key, id);
    barrier();
    best_key = 0u;
    best_id = NO_ID;
    [[dont_unroll]] for (uint i = 0u; i < UNITS; ++i) {
        const uvec2 other = unit_counts[i].xy;
        if (ahead(other.x, other.y, best_key, best_id)) {
            best_key = other.x;
            best_id = other.y;
        }
    }
    barrier();
}

void cut_by_min_p(float min_p) {
    if (!(min_p > 0.0)) return;
    const uint least = min_p < 1.0 ? key_of(best_logit + log(min_p)) : best_key;
    if (least > cut_key) {
        cut_key = least;
        cut_id = NO_ID;
    }
}

#define TURN_TOP_K 0u
#define TURN_TOP_P 1u
#define TURN_DRAW 2u

void kernel() {
    if (state.data[STATE_DONE] != 0u) return;
    const uint place = state.data[STATE_POSITION] + advance;  // absolute position of the id chosen here
    temperature = uintBitsToFloat(step_params.data[STEP_TEMPERATURE]);
    find_best();
    uint chosen = best_id;
    if (temperature > 0.0 && best_key != KEY_NAN) {
        const uint top_k = step_params.data[STEP_TOP_K];
        const float top_p = uintBitsToFloat(step_params.data[STEP_TOP_P]);
        const float min_p = uintBitsToFloat(step_params.data[STEP_MIN_P]);
        const uvec2 seed = uvec2(step_params.data[STEP_SEED_LOW], step_params.data[STEP_SEED_HIGH]);
        const float random = float(philox(uvec4(place, 0u, 0u, 0u), seed).x >> 8) / 16777216.0;
        best_logit = value_of(best_key);
        cut_key = KEY_MINUS_INFINITY;
        cut_id = NO_ID;
        if (top_k == 1u || top_p <= 0.0) {
            cut_key = best_key;
            cut_id = best_id;
        }
        // top-k, top-p and the draw take turns in one loop, so that what they share is there once: code is long here
        [[dont_unroll]] for (uint turn = cut_id == NO_ID ? TURN_TOP_K : TURN_DRAW; turn <= TURN_DRAW; ++turn) {
            const bool draws = turn == TURN_DRAW;
            uint tied_key = 0u;
            float amount = random;
            if (draws) {
                cut_by_min_p(min_p);
            } else {
                const uint wanted = turn == TURN_TOP_K ? top_k : 0u;
                if (turn == TURN_TOP_K ? wanted == 0u : !(top_p < 1.0)) continue;
                if (!keep_top(wanted, top_p, tied_key, amount)) continue;
            }
            chosen = descend(!draws, tied_key, amount);
            if (draws) continue;
            cut_key = tied_key;
            cut_id = chosen;
        }
    }
    // each invocation looks at other stop ids: one would wait for each of them
    const uint stops = step_params.data[STEP_STOP_COUNT];
    for (uint i = gl_LocalInvocationIndex; i < stops; i += LANES) {
        if (step_params.data[STEP_STOPS + i] == chosen) state.data[STATE_DONE] = 1u;
    }
    if (gl_LocalInvocationIndex == 0u) {
        state.data[STATE_POSITION] = place;
        state.data[STATE_TOKEN] = chosen;
        state.data[STATE_HISTORY + place % HISTORY_IDS] = chosen;
        readback.data[0] = chosen;
    }
}

#include "main.glsl"
