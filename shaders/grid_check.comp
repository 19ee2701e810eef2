#version 460
// Shows that data crosses a grid barrier: each workgroup checks what others wrote in the round before, and writes for the
// next. Counts in `found`: wrong words, and workgroups that came by.
#include "binding.glsl"

layout(local_size_x = LANES) in;

BUFFER(0, readonly, Before, uint, before)
BUFFER(1, writeonly, After, uint, after)
BUFFER(2, READWRITE, Found, uint, found)
PUSH_BEGIN
    ADDRESS(Before, before)
    ADDRESS(After, after)
    ADDRESS(Found, found)
    uint round;
PUSH_END

uint expected(uint round, uint place) { return (round * 0x9E3779B9u + place) * 0x85EBCA6Bu; }

void kernel() {
    const uint t = gl_LocalInvocationIndex, groups = gl_NumWorkGroups.x;
    AWAIT
    for (uint step = 1u; step < groups && round > 0u; step *= 2u) {
        const uint place = (gl_WorkGroupID.x + step) % groups * LANES + t;
        if (before.data[place] != expected(round - 1u, place)) atomicAdd(found.data[0], 1u);
    }
    const uint mine = gl_WorkGroupID.x * LANES + t;
    after.data[mine] = expected(round, mine);
    if (t == 0u) atomicAdd(found.data[1], 1u);
}

#include "main.glsl"
