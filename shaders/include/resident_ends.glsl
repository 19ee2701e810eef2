// What resident_rows.comp does with the sums of its rows, as the kernels of separate dispatches do it. The word `end` of a
// record says which; engine/program/resident_rows.py writes it.
#define END_MASK 7u
#define ROW_END_STORE 0u
#define ROW_END_ADD 1u
#define ROW_END_BIAS 2u
#define ROW_END_GATE 3u
#define ROW_END_GATE_GELU 4u
#define ROW_END_QKV 5u
#define ROW_END_HEAD 6u
#define END_NORM 8u        // x is RMS-normed first
#define END_ADDS_BIAS 16u  // with ROW_END_QKV
#define END_HALVES 32u     // with ROW_END_QKV: ROPE_HALVES of rope.glsl
// with two sums, of which a lane's next block is on its way too:
#define END_DEEP 64u     // that of the next chunk
#define END_PAIRED 128u  // that of the next part

#ifdef END_QKV
#define PAIR_HEAD(pair) uint((float(pair) + 0.5) * inverse_head_pairs)
uvec2 rope_pair(uint p) {
    if ((end & END_HALVES) != 0u && p < rotated_pairs) return uvec2(p, p + rotated_pairs);
    return uvec2(2u * p, 2u * p + 1u);
}
uvec2 pair_rows(uint item) {
    const uint pair = item / 2u, head = PAIR_HEAD(pair);
    return head * head_pairs * 2u + rope_pair(pair - head * head_pairs);
}
#endif

#ifdef END_QKV
vec2 rope_turn(vec2 value, vec2 angle) {
    return vec2(fma(value.x, angle.x, -(value.y * angle.y)), fma(value.x, angle.y, value.y * angle.x));
}

void store_pair(vec2 value, uint pair, vec2 angle, uint position) {
    const uint head = PAIR_HEAD(pair), p = pair - head * head_pairs, head_size = head_pairs * 2u;
    const uvec2 place = rope_pair(p);
    if (head < heads + kv_heads && p < rotated_pairs) value = rope_turn(value, angle);
    if (head < heads) {
        y.data[head * head_size + place.x] = value.x;
        y.data[head * head_size + place.y] = value.y;
        return;
    }
    const bool is_k = head < heads + kv_heads;
    const uvec2 target = ((head - heads - (is_k ? 0u : kv_heads)) * context + position) * head_size + place;
    if (is_k) {
        k_cache.data[target.x] = float16_t(value.x);
        k_cache.data[target.y] = float16_t(value.y);
    } else {
        v_cache.data[target.x] = float16_t(value.x);
        v_cache.data[target.y] = float16_t(value.y);
    }
}
#endif

#ifdef END_HEAD
shared uint history[HISTORY_IDS];
uint best_key, best_id;
float penalty;
bool keep_keys;

void begin_head() {
    penalty = uintBitsToFloat(step_params.data[STEP_REPEAT_PENALTY]);
    keep_keys = uintBitsToFloat(step_params.data[STEP_TEMPERATURE]) > 0.0;
    // a barrier follows, x being made ready
    for (uint i = gl_LocalInvocationIndex; i < HISTORY_IDS; i += GROUP) history[i] = state.data[STATE_HISTORY + i];
}

void end_head_row(uint id, float logit) {
    y.data[id] = logit;
    if (penalty != 1.0) {
        bool repeated = false;
        [[dont_unroll]] for (uint i = 0u; i < HISTORY_IDS; ++i) repeated = repeated || history[i] == id;
        if (repeated) logit = logit > 0.0 ? logit / penalty : logit * penalty;
    }
    const uint key = key_of(logit);
    if (keep_keys) scratch.data[id] = key;
    if (ahead(key, id, best_key, best_id)) {
        best_key = key;
        best_id = id;
    }
}

// the keys that pad the vocabulary, each team's largest, and one that pairs the last
void end_head() {
    const uint t = gl_LocalInvocationIndex, parts = gl_NumWorkGroups.x * TEAMS;
    if (gl_WorkGroupID.x + 1u == gl_NumWorkGroups.x) {
        if (keep_keys) {
            for (uint id = rows + t; id < padded; id += GROUP) scratch.data[id] = KEY_NAN;
        }
        if (t < 2u) scratch.data[padded + parts * 2u + t] = t == 0u ? 0u : NO_ID;
    }
    const uint top = subgroupMax(best_key);
    best_id = subgroupMin(best_key == top ? best_id : NO_ID);
    if (t % SUBGROUP_SIZE == 0u) {
        const uint part = gl_WorkGroupID.x * TEAMS + t / SUBGROUP_SIZE;
        scratch.data[padded + part * 2u] = top;
        scratch.data[padded + part * 2u + 1u] = best_id;
    }
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
    const uint own = tile * rows_a_tile + gl_LocalInvocationIndex % SUBGROUP_SIZE / SUM_LANES, kind = end & END_MASK;
    if (kind == ROW_END_ADD) early.x = y.data[min(own, rows - 1u)];
#ifdef END_BIAS
    if (kind == ROW_END_BIAS) early.x = bias.data[min(own, rows - 1u)];
#endif
#ifdef END_QKV
    const uint pair = min(own, rows - 1u) / 2u;
    if (kind == ROW_END_QKV && rotated_pairs != 0u) {
        const uint p = pair - PAIR_HEAD(pair) * head_pairs;
        early = table.data[position * rotated_pairs + min(p, rotated_pairs - 1u)];
    }
#ifdef END_BIAS
    if (kind == ROW_END_QKV && (end & END_ADDS_BIAS) != 0u) {
        const uvec2 biased = pair_rows(pair * 2u);
        offset = vec2(bias.data[biased.x], bias.data[biased.y]);
    }
#endif
#endif
}
