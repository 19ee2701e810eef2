// The entry point of every kernel, included last: it calls kernel(). Its twin (STAMPS) also notes the device clock at
// each workgroup's first start and last end. NULL_TWIN, told the address 0, returns at once, which leaves the cost of
// launching and synchronising alone.
void main() {
#if defined(NULL_TWIN)
    if (uvec2(stamp_slots) == uvec2(0)) return;
    kernel();
#elif defined(STAMPS)
    const uint last = gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z - 1;
    const uint slot = (gl_WorkGroupID.z * gl_NumWorkGroups.y + gl_WorkGroupID.y) * gl_NumWorkGroups.x + gl_WorkGroupID.x;
    const uvec2 begin = clockRealtime2x32EXT();
#ifdef CPU_DEVICE  // no barrier: subgroups run in order, and one would cost more than the kernel, as would holding begin
    if (gl_LocalInvocationIndex == 0) stamp_slots.data[slot].xy = begin;
    kernel();
#else
    kernel();
    barrier();
    if (gl_LocalInvocationIndex == 0) stamp_slots.data[slot].xy = begin;
#endif
    if (gl_LocalInvocationIndex == last) stamp_slots.data[slot].zw = clockRealtime2x32EXT();
#else
    kernel();
#endif
}
