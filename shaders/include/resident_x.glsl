// How x reaches a workgroup of resident_rows.comp: as block_x.glsl makes it ready, with its size a word of the record.

// of the values that an invocation loaded turn by turn, all together: a loop then has the code of their use once
#define OF_TURN(value, values, count, turn) \
    vec4 value = values[0]; \
    [[unroll]] for (uint other = 1u; other < count; ++other) if (turn == other) value = values[other];

// `tile`: this invocation's first, for which load_early is called
void make_x_ready(uint tile) {
    const uint t = gl_LocalInvocationIndex;
    const bool normed = (end & FLAG_NORM) != 0u;
    const uint quads = QUADS;
    vec4 v[TURNS];
#ifdef NORM
    vec4 n[NORM_TURNS];
    [[unroll]] for (uint k = 0u; k < NORM_TURNS; ++k) n[k] = vec4(0.0);
    if (normed) {
        [[unroll]] for (uint k = 0u; k < NORM_TURNS; ++k) n[k] = norm.data[min(k * GROUP + t, quads - 1u)];
    }
#endif
    AWAIT
    [[unroll]] for (uint k = 0u; k < TURNS; ++k) v[k] = x.data[min(k * GROUP + t, quads - 1u)];
    load_early(tile);
#ifdef NORM
    float norm_scale = 1.0;
    if (normed) {
        [[dont_unroll]] for (uint k = 0u; k * GROUP < blocks * 8u; ++k) {
            OF_TURN(quad, v, NORM_TURNS, k)
            if (k * GROUP + t >= quads) quad = vec4(0.0);
            square_quad(k * GROUP + t, quad);
        }
        norm_scale = norm_factor();
    }
#endif
    [[dont_unroll]] for (uint k = 0u; k * GROUP < blocks * 8u; ++k) {
        OF_TURN(quad, v, TURNS, k)
#ifdef NORM
        if (normed) {
            OF_TURN(factors, n, NORM_TURNS, k)
            quad = scaled(quad, norm_scale, factors);
        }
#endif
        if (k * GROUP + t >= quads) quad = vec4(0.0);
#ifdef PLAIN
        if (k * GROUP + t < blocks * 8u)
#endif
        stage_quad(k * GROUP + t, quad);
    }
    barrier();
}
