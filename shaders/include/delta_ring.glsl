// The newest tokens' inputs into the ring. Uses x, ring, key_heads and value_heads of the kernel.
uint channels() { return (2 * key_heads + value_heads) * HEAD_DIM; }

// by `count` invocations, each with its own `index`
void store_inputs(uint position, uint tokens, uint index, uint count) {
    for (uint token = tokens - min(tokens, CONV_TOKENS); token < tokens; ++token) {
        for (uint channel = index; channel < channels(); channel += count) {
            ring.data[ring_row(position + token, channels()) + channel] = x.data[token * channels() + channel];
        }
    }
}
