#version 460
// The bandwidth probe: every workgroup reads its own run of memory once, 16 bytes a load, BATCH loads in flight an
// invocation. What was read is folded and written, so that no compiler may leave a load out.
#include "binding.glsl"
#extension GL_EXT_control_flow_attributes : require

#ifdef CPU_DEVICE  // each invocation reads a run of its own, two 64-bit words a load: 5 times lavapipe's uvec4 rate
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#define ELEMENT u64vec2
#define STEP 1
#define FIRST (gl_GlobalInvocationID.x * LOADS)
#else  // neighbours read side by side
#define ELEMENT uvec4
#define STEP INVOCATIONS
#define FIRST (gl_WorkGroupID.x * (INVOCATIONS * LOADS) + gl_LocalInvocationIndex)
#endif

layout(local_size_x = INVOCATIONS) in;

BUFFER(0, readonly, Source, ELEMENT, source)
BUFFER(1, writeonly, Folds, uint, folds)
PUSH_BEGIN
    ADDRESS(Source, source)
    ADDRESS(Folds, folds)
PUSH_END

void kernel() {
    ELEMENT fold = ELEMENT(0);
    for (uint done = 0; done < LOADS; done += BATCH) {
        ELEMENT loaded[BATCH];
        [[unroll]] for (uint i = 0; i < BATCH; ++i) loaded[i] = source.data[FIRST + (done + i) * STEP];
        [[unroll]] for (uint i = 0; i < BATCH; ++i) fold ^= loaded[i];
    }
#ifdef CPU_DEVICE
    const uvec2 halves = unpackUint2x32(fold.x ^ fold.y);
    folds.data[gl_GlobalInvocationID.x] = halves.x ^ halves.y;
#else
    folds.data[gl_GlobalInvocationID.x] = fold.x ^ fold.y ^ fold.z ^ fold.w;
#endif
}

#include "main.glsl"
