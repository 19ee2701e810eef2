// Joins the token ranges of decode attention in their order:
// out[head] = sum_s e^(top_s - top) acc_s / sum_s e^(top_s - top) total_s.
// The includer has buffers sums (splits, heads: top and total) and merged, PART(i) = element i of the unnormalised
// results (splits, heads, HEAD_DIM), and `heads`.
void merge_element(uint i, uint splits) {
    const uint width = heads * HEAD_DIM, head = i / HEAD_DIM;
    float top = sums.data[head].x;
    for (uint s = 1; s < splits; ++s) top = max(top, sums.data[s * heads + head].x);
    float value = 0.0, total = 0.0;
    for (uint s = 0; s < splits; ++s) {
        const vec2 sum = sums.data[s * heads + head];
        const float weight = exp(sum.x - top);
        total = fma(weight, sum.y, total);
        value = fma(weight, PART(s * width + i), value);
    }
    merged.data[i] = value / total;
}
