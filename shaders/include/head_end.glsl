// The end of the LM head: logits, their keys after the repetition penalty, and of the rows that a lane has had the best
// key, of which end_head makes a team's.
// The includer has the buffers y and scratch, keep_keys (whether sampling needs all keys), and the push constants rows and
// padded; it sets penalty, best_key and best_id, and fills history where there is a penalty.
shared uint history[HISTORY_IDS];
float penalty;
uint best_key, best_id;

void end_head_row(uint id, float logit) {
    y.data[id] = logit;
    if (penalty != 1.0) {
        bool repeated = false;
#ifdef RESIDENT  // where all kernels are one, and the size of its code counts
        [[dont_unroll]]
#endif
        for (uint i = 0u; i < HISTORY_IDS; ++i) repeated = repeated || history[i] == id;
        if (repeated) logit = logit > 0.0 ? logit / penalty : logit * penalty;
    }
    const uint key = key_of(logit);
    if (keep_keys) scratch.data[id] = key;
    if (ahead(key, id, best_key, best_id)) {
        best_key = key;
        best_id = id;
    }
}

// A team's largest key: it has part `part` of `part_count`, and its first subgroup the rows. And the keys that pad the
// vocabulary, and a part that pairs the last.
void end_head(uint part, uint part_count, uint team_lane) {
    const uint t = gl_LocalInvocationIndex;
    if (gl_WorkGroupID.x + 1u == gl_NumWorkGroups.x) {
        if (keep_keys) {
            for (uint id = rows + t; id < padded; id += GROUP) scratch.data[id] = KEY_NAN;
        }
        if (t < 2u) scratch.data[padded + part_count * 2u + t] = t == 0u ? 0u : NO_ID;
    }
    const uint top = subgroupMax(best_key);
    best_id = subgroupMin(best_key == top ? best_id : NO_ID);
    if (team_lane == 0u) {
        scratch.data[padded + part * 2u] = top;
        scratch.data[padded + part * 2u + 1u] = best_id;
    }
}
