#version 460
// The persistent mode's kernel: resident workgroups walk a program as a tape, one record an op, with a grid barrier where
// the schedule has a barrier, for up to `tokens` tokens. engine/vulkan/joined_source.py puts in the kernels it runs;
// engine/decode/tape.py writes the tape.
//
// A grid barrier is two halves. Arriving, after an op's last store, is one addition to a counter that only grows; waiting
// is for it to reach what all workgroups will have added. In between, a kernel may load what never changes: it says
// AWAIT where it goes on to what other workgroups wrote. Memory is passed on as the Vulkan memory model asks: buffers that
// are written are nonprivate, a workgroup's writes become available with its arrival and visible to another when it has
// waited.
//
// Every wait is bounded: a workgroup that has polled `patience` times sets `aborted`, which ends all others' waits too.
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shared_memory_block : require
#ifdef WALK_CLOCK
#extension GL_EXT_shader_realtime_clock : require
#endif
// EXTENSIONS

layout(local_size_x = WALK_GROUP) in;

layout(buffer_reference, std430, buffer_reference_align = 16) restrict readonly buffer WalkTape { uint words[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WalkControl { nonprivate uint arrived; nonprivate uint aborted; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WalkState { nonprivate uint data[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) restrict readonly buffer WalkOrder { uint tokens; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WalkResults { nonprivate uint data[]; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer WalkStamps { nonprivate writeonly uvec4 data[]; };
layout(push_constant) uniform WalkPush {
    WalkTape walk_tape;
    WalkControl walk_control;
    WalkState walk_state;
    WalkOrder walk_order;      // tokens to make: host memory
    WalkResults walk_results;  // host memory
    WalkStamps walk_stamps;    // (ops, workgroups): start and end
    uint walk_records;
    uint walk_residents;
    uint walk_patience;
};

#include "tape.glsl"
#include "state.glsl"

#define WALK_SHARED 25
layout(std430) shared WalkShared {
    uint walk_record[2 * RECORD_WORDS];  // this op's and the next one's
    uint walk_ended;
};

uvec3 walk_group, walk_groups;
uint walk_stage;   // grid barriers that this workgroup has arrived at
uint walk_half;    // of walk_record
bool walk_waited;  // for the op at hand
uvec2 walk_begin;

#define WALK_WORD(i) walk_record[walk_half + RECORD_PUSH + i]

void walk_join() {
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
        gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
}

uvec2 walk_clock() {
#ifdef WALK_CLOCK
    return clockRealtime2x32EXT();
#else
    return uvec2(0u);
#endif
}

// The second half of a grid barrier, once an op.
void walk_wait() {
    if (walk_waited) return;
    walk_waited = true;
    if (gl_LocalInvocationIndex == 0u) {
        const uint target = walk_stage * walk_residents;
        uint ended = 0u;
        for (uint polls = 0u; atomicLoad(walk_control.arrived, gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed) < target; ++polls) {
            if (polls > walk_patience) {
                atomicStore(walk_control.aborted, 1u, gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
                walk_results.data[RESULTS_ABORTED] = 1u;
            }
            if (polls % 64u == 63u || polls > walk_patience) {
                ended = atomicLoad(walk_control.aborted, gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
                if (ended != 0u) break;
            }
        }
        memoryBarrier(gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire | gl_SemanticsMakeVisible);
        walk_ended = ended;
    }
    walk_join();
#ifdef WALK_STAMPS
    walk_begin = walk_clock();
#endif
}

// The first half.
void walk_arrive() {
    walk_join();
    if (gl_LocalInvocationIndex == 0u) {
        atomicAdd(walk_control.arrived, 1u, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
    }
    ++walk_stage;
}

// KERNELS

uint walk_tape_word(uint record) {
    return gl_LocalInvocationIndex < RECORD_WORDS ? walk_tape.words[record * RECORD_WORDS + gl_LocalInvocationIndex] : 0u;
}

void main() {
    const uint t = gl_LocalInvocationIndex;
    const uint tokens = walk_order.tokens;
    const bool writes_results = gl_WorkGroupID.x == 0u && t == 0u;
    walk_stage = 0u;
    walk_half = 0u;
    const uint first_word = walk_tape_word(0u);
    if (t < RECORD_WORDS) walk_record[t] = first_word;
    if (t == 0u) walk_ended = 0u;
    walk_join();
    for (uint token = 0u; token < tokens; ++token) {
        const uvec2 token_begin = walk_clock();
        for (uint record = 0u; record < walk_records; ++record) {
            const uint next_word = walk_tape_word(record + 1u < walk_records ? record + 1u : 0u);
            const uint kernel = walk_record[walk_half + RECORD_KERNEL], flags = walk_record[walk_half + RECORD_FLAGS];
            walk_groups = uvec3(walk_record[walk_half + RECORD_GROUPS_X], walk_record[walk_half + RECORD_GROUPS_Y], 1u);
            const uint items = walk_groups.x * walk_groups.y;
            walk_waited = (flags & RECORD_WAITS) == 0u;
#ifdef WALK_STAMPS
            walk_begin = walk_clock();
#endif
            if (!walk_awaits(kernel)) walk_wait();
            for (uint item = gl_WorkGroupID.x; item < items; item += walk_residents) {
                walk_group = uvec3(item, 0u, 0u);
                if (walk_groups.y != 1u) walk_group.xy = uvec2(item % walk_groups.x, item / walk_groups.x);
                switch (kernel) {
// CASES
                }
                if (item + walk_residents < items) barrier();  // shared memory may be written again
            }
            walk_wait();
            if (record == 0u && walk_state.data[STATE_DONE] != 0u) return;  // the same for all workgroups
            if (walk_ended != 0u) return;
            if (record + 1u == walk_records && writes_results) {
                const uint at = RESULTS_TOKENS + token * RESULT_WORDS;
                const uvec2 token_end = walk_clock();
                walk_results.data[at + RESULT_ID] = walk_state.data[STATE_TOKEN];
                walk_results.data[at + RESULT_START] = token_begin.x;
                walk_results.data[at + RESULT_START + 1u] = token_begin.y;
                walk_results.data[at + RESULT_END] = token_end.x;
                walk_results.data[at + RESULT_END + 1u] = token_end.y;
                walk_results.data[at + RESULT_MADE] = walk_state.data[STATE_DONE] != 0u ? RESULT_LAST : RESULT_MORE;
            }
            walk_half = RECORD_WORDS - walk_half;
            if (t < RECORD_WORDS) walk_record[walk_half + t] = next_word;
#ifdef WALK_STAMPS
            walk_join();
            if (t == 0u) walk_stamps.data[record * walk_residents + gl_WorkGroupID.x] = uvec4(walk_begin, walk_clock());
#endif
            if ((flags & RECORD_ARRIVES) != 0u) {
                walk_arrive();
            } else {
                walk_join();
            }
        }
    }
}
