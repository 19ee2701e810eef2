// Rotary position embedding from a table of (cos, sin), one vec2 a position and rotated pair: the host computes it
// in float64, since a GPU's own sin and cos may be far off for large angles. ROTATED of HEAD_DIM dimensions turn.
// Pair p of a head is dimensions (2p, 2p + 1), or with ROPE_HALVES (p, p + ROTATED / 2); the rest pass through.
#define HEAD_PAIRS (HEAD_DIM / 2)

uvec2 rope_pair(uint p) {
#ifdef ROPE_HALVES
    if (p < ROTATED / 2) return uvec2(p, p + ROTATED / 2);
#endif
    return uvec2(2 * p, 2 * p + 1);
}

#include "rope_turn.glsl"
