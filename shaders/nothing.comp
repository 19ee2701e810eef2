#version 460
// Does nothing: its stamped twin reads the clock.
#include "binding.glsl"

layout(local_size_x = 1) in;

PUSH_BEGIN
    uint unused;
PUSH_END

void kernel() {}

#include "main.glsl"
