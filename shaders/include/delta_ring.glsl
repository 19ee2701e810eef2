// The newest tokens' inputs into the ring, and into the marked one those up to token `mark` if that is in the chunk. Uses
// x, ring, key_heads and value_heads of the kernel.
uint channels() { return (2 * key_heads + value_heads) * HEAD_DIM; }

// by `count` invocations, each with its own `index`
void store_inputs(uint position, uint tokens, uint index, uint count) {
    for (uint token = tokens - min(tokens, CONV_TOKENS); token < tokens; ++token) {
        for (uint channel = index; channel < channels(); channel += count) {
            ring.data[ring_row(position + token, channels()) + channel] = x.data[token * channels() + channel];
        }
    }
}

#ifdef MARKED
// before store_inputs, by the same invocations: some of them are still in the ring
void mark_inputs(uint position, uint tokens, uint mark, uint index, uint count) {
    if (mark >= tokens) return;
    for (int token = int(mark) - int(min(position + mark, CONV_TOKENS - 1)); token <= int(mark); ++token) {
        const uint row = ring_row(uint(int(position) + token), channels());
        for (uint channel = index; channel < channels(); channel += count) {
            marked_ring.data[row + channel] = token < 0 ? ring.data[row + channel] : x.data[token * channels() + channel];
        }
    }
}
#endif
