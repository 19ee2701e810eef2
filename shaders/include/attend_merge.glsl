// Joins the token ranges of decode attention:
// out[head] = sum_s e^(top_s - top) acc_s / sum_s e^(top_s - top) total_s,
// each sum as four, over s = 0, 4, 8, ..., s = 1, 5, 9, ... and so on, so that lanes can share it.
// The includer has buffers sums (splits, heads: top and total) and merged, PART(i) = element i of the unnormalised
// results (splits, heads, HEAD_DIM), and `heads`. With GATED it has `gate`, whose sigmoid out is multiplied by.
#include "activation.glsl"

void merge_element(uint i, uint splits) {
    const uint width = heads * HEAD_DIM, head = i / HEAD_DIM;
    float top = sums.data[head].x;
    for (uint s = 1; s < splits; ++s) top = max(top, sums.data[s * heads + head].x);
    float value[4], total[4];
    for (uint chain = 0; chain < 4; ++chain) {
        value[chain] = total[chain] = 0.0;
        for (uint s = chain; s < splits; s += 4) {
            const vec2 sum = sums.data[s * heads + head];
            const float weight = exp(sum.x - top);
            total[chain] = fma(weight, sum.y, total[chain]);
            value[chain] = fma(weight, PART(s * width + i), value[chain]);
        }
    }
    precise float joined = ((value[0] + value[1]) + (value[2] + value[3])) / ((total[0] + total[1]) + (total[2] + total[3]));
#ifdef GATED
    joined *= sigmoid(gate.data[i]);
#endif
    merged.data[i] = joined;
}
