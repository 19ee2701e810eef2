// Logits as unsigned keys in the same order: a larger logit has a larger key, -0 equals +0, NaN is 0, below all.
#define KEY_NAN 0u
#define KEY_MINUS_INFINITY 0x007fffffu

uint key_of(float value) {
    const uint bits = floatBitsToUint(value);
    const uint magnitude = bits & 0x7fffffffu;
    // by bits, because a compiler may assume that no float is NaN
    if (magnitude > 0x7f800000u) return KEY_NAN;
    if (magnitude == 0u) return 0x80000000u;
    return bits >> 31 != 0u ? ~bits : bits | 0x80000000u;
}

float value_of(uint key) { return uintBitsToFloat(key >> 31 != 0u ? key & 0x7fffffffu : ~key); }

// Whether (key, id) stands before the other in descending logit, ascending id.
bool ahead(uint key, uint id, uint other_key, uint other_id) {
    return key > other_key || (key == other_key && id < other_id);
}
