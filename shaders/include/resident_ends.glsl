// What resident_rows.comp does with the sums of its rows, as the kernels of separate dispatches do it. The word `end` of a
// record says which, and has flags; engine/program/resident_rows.py writes it. A build has the ends that some op of it has:
// END_BIAS, END_GATE, END_GATE_GELU, END_QKV, END_HEAD.
#define ROW_END_MASK 7u
#define ROW_END_STORE 0u
#define ROW_END_ADD 1u
#define ROW_END_BIAS 2u
#define ROW_END_GATE 3u
#define ROW_END_GATE_GELU 4u
#define ROW_END_QKV 5u
#define ROW_END_HEAD 6u
#define FLAG_NORM 8u        // x is RMS-normed first
#define FLAG_ADDS_BIAS 16u  // with ROW_END_QKV
#define FLAG_HALVES 32u     // with ROW_END_QKV: ROPE_HALVES of rope.glsl
// with two sums, of which a lane's next block is on its way too:
#define FLAG_DEEP 64u     // that of the next chunk
#define FLAG_PAIRED 128u  // that of the next part

#ifdef END_QKV
#define PAIR_HEAD(pair) uint((float(pair) + 0.5) * inverse_head_pairs)
#define PAIR_IN_HEAD(pair) ((pair) - PAIR_HEAD(pair) * head_pairs)
uvec2 rope_pair(uint p) {
    if ((end & FLAG_HALVES) != 0u && p < rotated_pairs) return uvec2(p, p + rotated_pairs);
    return uvec2(2u * p, 2u * p + 1u);
}
uvec2 pair_rows(uint item) {
    const uint pair = item / 2u;
    return PAIR_HEAD(pair) * head_pairs * 2u + rope_pair(PAIR_IN_HEAD(pair));
}
#define HEAD_PAIRS head_pairs
#define ROTATED_PAIRS rotated_pairs
#include "store_pair.glsl"
#endif

#ifdef END_HEAD
bool keep_keys;
#include "head_end.glsl"

void begin_head() {
    penalty = uintBitsToFloat(step_params.data[STEP_REPEAT_PENALTY]);
    keep_keys = uintBitsToFloat(step_params.data[STEP_TEMPERATURE]) > 0.0;
    // a barrier follows, x being made ready
    for (uint i = gl_LocalInvocationIndex; i < HISTORY_IDS; i += GROUP) history[i] = state.data[STATE_HISTORY + i];
}
#endif

float activated(float v, uint kind) {
#ifdef END_GATE_GELU
    if (kind == ROW_END_GATE_GELU) return gelu(v);
#endif
    return silu(v);
}

// What the sums of this invocation's row of a tile, or pair of rows, are added to or turned by.
vec2 early, offset;
#ifdef END_QKV
uint position, done;
#endif

void load_early(uint tile) {
    const uint own = tile * rows_a_tile + gl_LocalInvocationIndex % SUBGROUP_SIZE / SUM_LANES, kind = end & ROW_END_MASK;
    if (kind == ROW_END_ADD) early.x = y.data[min(own, rows - 1u)];
#ifdef END_BIAS
    if (kind == ROW_END_BIAS) early.x = bias.data[min(own, rows - 1u)];
#endif
#ifdef END_QKV
    const uint pair = min(own, rows - 1u) / 2u;
    if (kind == ROW_END_QKV && rotated_pairs != 0u) {
        early = table.data[position * rotated_pairs + min(PAIR_IN_HEAD(pair), rotated_pairs - 1u)];
    }
#ifdef END_BIAS
    if (kind == ROW_END_QKV && (end & FLAG_ADDS_BIAS) != 0u) {
        const uvec2 biased = pair_rows(pair * 2u);
        offset = vec2(bias.data[biased.x], bias.data[biased.y]);
    }
#endif
#endif
}
