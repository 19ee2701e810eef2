// The candidates of sample_pick and the draw among them. Included after its buffers.
//
// Every filter keeps a prefix of the order descending logit, ascending id, so the candidates are described by
// their last member, the cut. It is found by narrowing an interval of keys: each pass over the vocabulary sums
// what stands at or above four thresholds, until so few keys are left between two of them that they can be sorted.
// All sums run in a fixed order: lane by lane, a shuffle tree in the unit, then unit by unit.
#define NEAR 256u         // keys sorted at most
#define BLOCK 32u         // loads of a lane summed before they join the rest, which keeps small weights exact
#define FLOAT_PASSES 8u   // then thresholds are chosen by key, which ends in 16 passes whatever the logits

shared vec4 unit_masses[UNITS];
shared uvec4 unit_counts[UNITS];
shared uint near_count;
shared uvec2 near[NEAR];    // (key, id) as found
shared uvec2 ranked[NEAR];  // the same in order

// by fours, as long as `more`: one after another each would wait for its load, and all at once are much code
#if UNITS % 4 == 0
#define EACH_UNIT(more) \
    [[dont_unroll]] for (uint four = 0u; four < UNITS && (more); four += 4u) [[unroll]] for (uint i = four; i < four + 4u; ++i)
#else
#define EACH_UNIT(more) [[dont_unroll]] for (uint i = 0u; i < UNITS && (more); ++i)
#endif

float temperature;
uint best_key;
uint best_id;
float best_logit;
uint cut_key;  // candidates are key > cut_key, or key == cut_key and id <= cut_id
uint cut_id;

bool candidate(uint key, uint id) { return key > cut_key || (key == cut_key && id <= cut_id); }

// exp((logit - largest) / divisor), in [0, 1]; 1 for the largest, even if it is infinite
float weight(uint key, float divisor) {
    if (key == best_key) return 1.0;
    const float exponent = (value_of(key) - best_logit) / divisor;
    return exponent > -87.0 ? exp(exponent) : 0.0;
}

// over the workgroup
void sum_both(inout uvec4 counts, inout vec4 masses) {
#if UNIT_LANES > 1
    counts = subgroupAdd(counts);  // integers: the order does not matter
    [[unroll]] for (uint step = UNIT_LANES / 2u; step > 0u; step >>= 1) masses += subgroupShuffleXor(masses, step);
#endif
    const uint unit = gl_LocalInvocationIndex / UNIT_LANES;
    if (gl_LocalInvocationIndex % UNIT_LANES == 0u) {
        unit_counts[unit] = counts;
        unit_masses[unit] = masses;
    }
    barrier();
    counts = uvec4(0u);
    masses = vec4(0.0);
    EACH_UNIT(true) {
        counts += unit_counts[i];
        masses += unit_masses[i];
    }
    barrier();
}

// With `ties`, whether it is a candidate of the key `only`; else its weight in the draw.
float share(uint key, uint id, bool ties, uint only) {
    if (!candidate(key, id)) return 0.0;
    return ties ? float(key == only) : weight(key, temperature);
}

float quad_share(uint quad, bool ties, uint only) {
    uvec4 keys = scratch.data[quad];
    float low = 0.0, high = 0.0;
    [[dont_unroll]] for (uint id = quad * 4u; id < quad * 4u + 4u; ++id) {
        const float other = share(keys.x, id, ties, only);
        if (id % 4u < 2u) low += other;
        else high += other;
        keys = keys.yzwx;
    }
    return low + high;
}

// The first id, in ascending order, at which the cumulative share exceeds `amount` (with `ties`) or `amount` of the
// total. Where rounding lets none exceed it, the last one of any share in the last part that has one.
uint descend(bool ties, uint only, float amount) {
    const uint unit = gl_LocalInvocationIndex / UNIT_LANES;
    uint start = 0u;
    uint length = padded / 4u;
    float target = amount;
    bool scaled = ties;
    while (length > 1u) {
        // each unit sums a part of the range; the range shrinks to the part that holds the target
        const uint part = (length + UNITS - 1u) / UNITS;
        const uint end = min(start + length, start + (unit + 1u) * part);
        float mine = 0.0;
        for (uint i = start + unit * part + gl_LocalInvocationIndex % UNIT_LANES; i < end; i += UNIT_LANES) {
            mine += quad_share(i, ties, only);
        }
#if UNIT_LANES > 1
        [[unroll]] for (uint step = UNIT_LANES / 2u; step > 0u; step >>= 1) mine += subgroupShuffleXor(mine, step);
#endif
        if (gl_LocalInvocationIndex % UNIT_LANES == 0u) unit_masses[unit].x = mine;
        barrier();
        if (!scaled) {
            float total = 0.0;
            EACH_UNIT(true) total += unit_masses[i].x;
            target = amount * total;
            scaled = true;
        }
        float sum = 0.0;
        float before = 0.0;
        uint found = 0u;
        EACH_UNIT(sum <= target) {
            const float other = unit_masses[i].x;
            if (sum > target) continue;
            if (other > 0.0) {
                found = i;
                before = sum;
            }
            sum += other;
        }
        barrier();
        target -= before;
        length = min(part, length - found * part);
        start += found * part;
    }
    const uvec4 keys = scratch.data[start];
    float sum = 0.0;
    uint id = start * 4u;
    [[dont_unroll]] for (uint i = 0u; i < 4u && sum <= target; ++i) {
        const float other = share(keys[i], start * 4u + i, ties, only);
        if (other > 0.0) id = start * 4u + i;
        sum += other;
    }
    return id;
}

// Sorts the candidates with low <= key < high, at most NEAR, into `ranked`; returns their number.
uint sort_near(uint low, uint high) {
    if (gl_LocalInvocationIndex == 0u) near_count = 0u;
    barrier();
    for (uint i = gl_LocalInvocationIndex; i < padded / 4u; i += LANES) {
        uvec4 keys = scratch.data[i];
        [[dont_unroll]] for (uint id = i * 4u; id < i * 4u + 4u; ++id) {
            if (keys.x >= low && keys.x < high && candidate(keys.x, id)) {
                near[atomicAdd(near_count, 1u)] = uvec2(keys.x, id);
            }
            keys = keys.yzwx;
        }
    }
    barrier();
    const uint count = near_count;
    for (uint i = gl_LocalInvocationIndex; i < count; i += LANES) {
        const uvec2 mine = near[i];
        uint rank = 0u;
        for (uint j = 0u; j < count; ++j) rank += uint(ahead(near[j].x, near[j].y, mine.x, mine.y));
        ranked[rank] = mine;
    }
    barrier();
    return count;
}

// Moves the cut up to the candidate that completes the wanted: `wanted` candidates (0: by mass), or the fraction
// `mass` of their summed weight at temperature 1. At least one stays.
//
// Where more keys than can be sorted equal the last one's, the cut stays as it is and the result is true: the cut then
// is key `tied_key`, at the id that descend(true, tied_key, tied_place) finds.
bool keep_top(uint wanted, float mass, out uint tied_key, out float tied_place) {
    tied_key = 0u;
    tied_place = 0.0;
    const bool by_mass = wanted == 0u;
    uint low = cut_key;          // what stands at or above it suffices
    uint high = best_key + 1u;   // what stands at or above it does not
    uint high_count = 0u;
    float high_mass = 0.0;
    float target = 0.0;
    uint ties = 0u;
    uvec4 bounds = uvec4(low, key_of(best_logit - 16.0), key_of(best_logit - 6.0), key_of(best_logit - 2.0));
    for (uint pass = 0u;; ++pass) {
        bounds = clamp(bounds, uvec4(low), uvec4(high - 1u));
        vec4 masses = vec4(0.0);
        uvec4 counts = uvec4(0u);
        const uint quads = padded / 4u;
        for (uint block = gl_LocalInvocationIndex; block < quads; block += LANES * BLOCK) {
            vec4 block_masses = vec4(0.0);
            for (uint i = block; i < min(block + LANES * BLOCK, quads); i += LANES) {
                const uvec4 keys = scratch.data[i];
                [[unroll]] for (uint j = 0u; j < 4u; ++j) {
                    if (keys[j] >= low && candidate(keys[j], i * 4u + j)) {
                        // a choice, not a product: beside cooperative matrices NVIDIA's compiler left the factor out
                        const bvec4 reached = greaterThanEqual(uvec4(keys[j]), bounds);
                        counts += uvec4(reached);
                        if (by_mass) block_masses += mix(vec4(0.0), vec4(weight(keys[j], 1.0)), reached);
                    }
                }
            }
            masses += block_masses;
        }
        sum_both(counts, masses);
        if (pass == 0u) {
            if (!by_mass && counts.x <= wanted) return false;
            target = mass * masses.x;
        }
        // the sums fall from threshold to threshold, and the first one suffices
        uint low_count = counts.x;
        [[unroll]] for (uint j = 1u; j < 4u; ++j) {
            if (by_mass ? masses[j] >= target : counts[j] >= wanted) {
                low = bounds[j];
                low_count = counts[j];
            }
        }
        [[unroll]] for (uint j = 3u; j > 0u; --j) {
            if (by_mass ? masses[j] < target : counts[j] < wanted) {
                high = bounds[j];
                high_count = counts[j];
                high_mass = masses[j];
            }
        }
        ties = low_count - high_count;
        if (ties <= NEAR || high - low == 1u) break;
        const uint span = high - low;
        bounds = low + uvec4(0u, span / 4u, span / 2u, span / 2u + span / 4u);
        if (pass < FLOAT_PASSES && span > 1024u && low > KEY_MINUS_INFINITY) {
            const float from = value_of(low);
            const float quarter = (value_of(high) - from) * 0.25;
            bounds = uvec4(low, key_of(from + quarter), key_of(from + 2.0 * quarter), key_of(from + 3.0 * quarter));
        }
    }
    if (ties > NEAR) {  // the lowest ids of them
        tied_key = low;
        tied_place = float(wanted - high_count - 1u);
        if (by_mass) tied_place = clamp(ceil((target - high_mass) / weight(low, 1.0)) - 1.0, 0.0, float(ties - 1u));
        return true;
    }
    const uint count = sort_near(low, high);
    uint last = wanted - high_count - 1u;
    if (by_mass) {
        float sum = high_mass;
        for (last = 0u;; ++last) {
            sum += weight(ranked[last].x, 1.0);
            if (sum >= target || last + 1u >= count) break;
        }
    }
    cut_key = ranked[last].x;
    cut_id = ranked[last].y;
    barrier();  // `ranked` may be written again
    return false;
}
