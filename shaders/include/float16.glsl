// Floats as float16, rounded to nearest (packHalf2x16 may round otherwise). In memory the columns of a quad lie in the order
// 0, 2, 1, 3, in which bytes come apart; it is the same for both factors of a product, and their sum does not care.

// Weights are multiplied by this on their way to float16: what is below 2^-14, as many are, would lose bits there. Up to
// 4094 there is no overflow.
#define WEIGHT_FACTOR 16.0

uvec2 float16_quad(vec4 v) {
    const f16vec4 h = f16vec4(v.xzyw);
    return uvec2(packFloat2x16(h.xy), packFloat2x16(h.zw));
}

// v without the bits that float16 has no room for: what is left of v is in float16 all but exact. (Not by conversion to
// float16 and back, which compilers take for nothing.)
vec4 upper_part(vec4 v) { return uintBitsToFloat(floatBitsToUint(v) & 0xffffe000u); }
