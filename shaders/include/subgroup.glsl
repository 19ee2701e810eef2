// Sums and maxima over a subgroup in one fixed order, a shuffle-xor tree. (subgroupAdd's order is the driver's choice,
// so it is never used.)
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

float subgroup_sum(float value) {
    for (uint step = SUBGROUP_SIZE / 2; step > 0; step >>= 1) value += subgroupShuffleXor(value, step);
    return value;
}

float subgroup_max(float value) {
    for (uint step = SUBGROUP_SIZE / 2; step > 0; step >>= 1) value = max(value, subgroupShuffleXor(value, step));
    return value;
}
