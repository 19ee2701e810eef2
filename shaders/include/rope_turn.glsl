// A pair of dimensions turned by an angle's (cos, sin): by explicit fma, so that every kernel rounds alike.
vec2 rope_turn(vec2 value, vec2 angle) {
    return vec2(fma(value.x, angle.x, -(value.y * angle.y)), fma(value.x, angle.y, value.y * angle.x));
}
