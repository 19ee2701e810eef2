// Sums and maxima over a workgroup of LANES invocations in one fixed order: a shuffle-xor tree inside each
// subgroup, then the subgroups in turn. (subgroupAdd's order is the driver's choice, so it is never used.)
#extension GL_KHR_shader_subgroup_basic : require
#extension GL_KHR_shader_subgroup_shuffle : require

#define REDUCE_GROUPS (LANES / SUBGROUP_SIZE)
#if REDUCE_GROUPS > 1
shared float reduce_parts[REDUCE_GROUPS];
#endif

float subgroup_sum(float value) {
    for (uint step = SUBGROUP_SIZE / 2; step > 0; step >>= 1) value += subgroupShuffleXor(value, step);
    return value;
}

float subgroup_max(float value) {
    for (uint step = SUBGROUP_SIZE / 2; step > 0; step >>= 1) value = max(value, subgroupShuffleXor(value, step));
    return value;
}

float workgroup_sum(float value) {
    value = subgroup_sum(value);
#if REDUCE_GROUPS > 1
    barrier();
    if (gl_LocalInvocationIndex % SUBGROUP_SIZE == 0) reduce_parts[gl_LocalInvocationIndex / SUBGROUP_SIZE] = value;
    barrier();
    value = 0.0;
    for (uint i = 0; i < REDUCE_GROUPS; ++i) value += reduce_parts[i];
#endif
    return value;
}

float workgroup_max(float value) {
    value = subgroup_max(value);
#if REDUCE_GROUPS > 1
    barrier();
    if (gl_LocalInvocationIndex % SUBGROUP_SIZE == 0) reduce_parts[gl_LocalInvocationIndex / SUBGROUP_SIZE] = value;
    barrier();
    value = reduce_parts[0];
    for (uint i = 1; i < REDUCE_GROUPS; ++i) value = max(value, reduce_parts[i]);
#endif
    return value;
}
