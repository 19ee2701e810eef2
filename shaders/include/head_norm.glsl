// RMS norm of one head of HEAD_DIM elements by the lanes of a workgroup, which is one subgroup: lane l squares elements
// l, l + SUBGROUP_SIZE, ... in order. Kernels that share this round alike. HEAD_ELEMENT(i) is an element before the norm.
#define LANES SUBGROUP_SIZE
#include "reduce.glsl"

float head_norm_factor(float eps) {
    float sum = 0.0;
    for (uint i = gl_LocalInvocationIndex; i < HEAD_DIM; i += SUBGROUP_SIZE) {
        const float value = HEAD_ELEMENT(i);
        sum = fma(value, value, sum);
    }
    return inversesqrt(fma(subgroup_sum(sum), 1.0 / float(HEAD_DIM), eps));
}

float head_normed(float value, float factor, float weight) {
    precise const float normed = value * factor * weight;
    return normed;
}
