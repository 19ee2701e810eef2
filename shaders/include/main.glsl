// The entry point of every kernel, included last: it calls kernel(), and in the stamped twin notes the device
// clock of each workgroup's first start and last end.
void main() {
#ifdef STAMPS
    const uint last = gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z - 1;
    const uvec2 begin = clockRealtime2x32EXT();
    const uint slot = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    kernel();
#ifdef CPU_DEVICE
    // a software device runs a workgroup's subgroups in order, and a barrier there costs more than the kernel
    if (gl_LocalInvocationIndex == last) stamp_slots.data[slot].zw = clockRealtime2x32EXT();
#else
    barrier();
    if (gl_LocalInvocationIndex == last) stamp_slots.data[slot].zw = clockRealtime2x32EXT();
#endif
    if (gl_LocalInvocationIndex == 0) stamp_slots.data[slot].xy = begin;
#else
    kernel();
#endif
}
