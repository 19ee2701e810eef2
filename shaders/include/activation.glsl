// Activations, written one way so that fused and separate kernels agree to the bit.

// v / (1 + exp(-v))
float silu(float v) { return v / (1.0 + exp(-v)); }

// GELU in the form with tanh, v / 2 (1 + tanh(u)) with u = sqrt(2 / pi) (v + 0.044715 v^3), as v / (1 + exp(-2u)): some
// drivers' tanh is no number for a large u
float gelu(float v) {
    precise const float twice_u = 1.5957691216057308 * v * fma(0.044715 * v, v, 1.0);
    return v / (1.0 + exp(-twice_u));
}

#ifdef GELU
#define ACTIVATE gelu
#else
#define ACTIVATE silu
#endif
float sigmoid(float v) { return 1.0 / (1.0 + exp(-v)); }
