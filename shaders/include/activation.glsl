// silu(v) = v / (1 + exp(-v)), written one way so that fused and separate kernels agree to the bit.
float silu(float v) { return v / (1.0 + exp(-v)); }
