// A step of a shuffle-xor tree for two sums over the lanes at once: half of the lanes go on with the first, half with the
// second. It adds the same pairs as a step for each.
#extension GL_KHR_shader_subgroup_shuffle : require

float halve(float first, float second, uint mask) {
    const bool upper = (gl_LocalInvocationIndex & mask) != 0u;
    return (upper ? second : first) + subgroupShuffleXor(upper ? first : second, mask);
}
