#version 460
// A kernel of a chosen length: each invocation turns its word over ROUNDS times, one step after another.
#include "binding.glsl"

layout(local_size_x = SUBGROUP_SIZE) in;

BUFFER(0, READWRITE, Words, uint, words)
PUSH_BEGIN
    ADDRESS(Words, words)
    uint rounds;
PUSH_END

void kernel() {
    uint word = words.data[gl_GlobalInvocationID.x];
    for (uint i = 0; i < rounds; ++i) word = (word ^ (word >> 15)) * 0x2c1b3c6du + i;
    words.data[gl_GlobalInvocationID.x] = word;
}

#include "main.glsl"
