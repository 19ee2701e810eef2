// Sums and maxima over a workgroup of LANES invocations in one fixed order: subgroup.glsl's inside each subgroup, then the
// subgroups in turn.
#include "subgroup.glsl"

#define REDUCE_GROUPS (LANES / SUBGROUP_SIZE)
#if REDUCE_GROUPS > 1
shared float reduce_parts[REDUCE_GROUPS];
#endif

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
