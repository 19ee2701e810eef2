// A column of the delta state, as COLUMN_LANES invocations hold it. The includer defines KEY(m) and QUERY(m), this
// invocation's m-th quad of the token's key and query.
vec4 column[COLUMN_QUADS];

float add_quad(float sum, vec4 a, vec4 b) { return fma(a.w, b.w, fma(a.z, b.z, fma(a.y, b.y, fma(a.x, b.x, sum)))); }

float column_sum(float value) {
    [[unroll]] for (uint step = COLUMN_LANES / 2; step > 0; step >>= 1) value += subgroupShuffleXor(value, step);
    return value;
}

// the token's update of the column, and its element of o
float column_step(float v, float kept, float beta) {
    float sum = 0.0;
    [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) {
        column[m] *= kept;
        sum = add_quad(sum, column[m], KEY(m));
    }
    const float d = beta * (v - column_sum(sum));
    sum = 0.0;
    [[unroll]] for (uint m = 0; m < COLUMN_QUADS; ++m) {
        column[m] = fma(KEY(m), vec4(d), column[m]);
        sum = add_quad(sum, column[m], QUERY(m));
    }
    return column_sum(sum);
}
