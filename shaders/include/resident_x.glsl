// How x reaches a workgroup of resident_rows.comp: as block_x.glsl makes it ready, with its size a word of the record.

// two quads of the values that an invocation loaded turn by turn, all together: a loop then has the code of their use once
#define OF_TURN(low, high, values, count, turn) \
    vec4 low = values[0], high = values[1]; \
    [[unroll]] for (uint other = 1u; other < count; ++other) { \
        if (turn == other) { \
            low = values[2u * other]; \
            high = values[2u * other + 1u]; \
        } \
    }

// `tile`: this invocation's first, for which load_early is called
void make_x_ready(uint tile) {
    const uint t = gl_LocalInvocationIndex;
    const bool normed = (end & FLAG_NORM) != 0u;
    const uint quads = QUADS;
    vec4 v[2 * TURNS];
#ifdef NORM
    vec4 n[2 * NORM_TURNS];
    [[unroll]] for (uint k = 0u; k < 2u * NORM_TURNS; ++k) n[k] = vec4(0.0);
    if (normed) {
        [[unroll]] for (uint k = 0u; k < NORM_TURNS; ++k) {
            n[2u * k] = norm.data[min(LOW_PLACE(k * GROUP + t), quads - 1u)];
            n[2u * k + 1u] = norm.data[min(HIGH_PLACE(k * GROUP + t), quads - 1u)];
        }
    }
#endif
    AWAIT
    [[unroll]] for (uint k = 0u; k < TURNS; ++k) {
        v[2u * k] = x.data[min(LOW_PLACE(k * GROUP + t), quads - 1u)];
        v[2u * k + 1u] = x.data[min(HIGH_PLACE(k * GROUP + t), quads - 1u)];
    }
    load_early(tile);
#ifdef NORM
    float norm_scale = 1.0;
    if (normed) {
        [[dont_unroll]] for (uint k = 0u; k * GROUP < blocks * 4u; ++k) {
            OF_TURN(low, high, v, NORM_TURNS, k)
            const uint item = k * GROUP + t;
            if (LOW_PLACE(item) >= quads) low = vec4(0.0);
            if (HIGH_PLACE(item) >= quads) high = vec4(0.0);
            square_pair(item, low, high);
        }
        norm_scale = norm_factor();
    }
#endif
    [[dont_unroll]] for (uint k = 0u; k * GROUP < blocks * 4u; ++k) {
        const uint item = k * GROUP + t;
        OF_TURN(low, high, v, TURNS, k)
#ifdef NORM
        if (normed) {
            OF_TURN(low_factors, high_factors, n, NORM_TURNS, k)
            low = scaled(low, norm_scale, low_factors);
            high = scaled(high, norm_scale, high_factors);
        }
#endif
        if (LOW_PLACE(item) >= quads) low = vec4(0.0);
        if (HIGH_PLACE(item) >= quads) high = vec4(0.0);
#ifdef PLAIN
        if (item < blocks * 4u)
#endif
        stage_pair(item, low, high);
    }
    barrier();
}
