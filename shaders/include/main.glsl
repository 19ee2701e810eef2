// The entry point of every kernel, included last: it calls kernel(). Its twin (STAMPS) also notes the device clock at
// each workgroup's first start and last end. NULL_TWIN, told the address 0, returns at once, which leaves the cost of
// launching and synchronising alone.
#if defined(STAMPS) && !defined(NULL_TWIN)
#define FIRST_LANE (gl_LocalInvocationIndex == 0u)
#define LAST_LANE (gl_LocalInvocationIndex == gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z - 1u)
#endif

void main() {
#if defined(NULL_TWIN)
    if (uvec2(stamp_slots) == uvec2(0)) return;
    kernel();
#elif defined(STAMPS)
    const uint slot = gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x;
#ifdef CPU_DEVICE  // no barrier: subgroups run in order, and one would cost more than the kernel, as would holding begin
    if (FIRST_LANE) stamp_slots.data[slot].xy = clockRealtime2x32EXT();
    kernel();
    if (LAST_LANE) stamp_slots.data[slot].zw = clockRealtime2x32EXT();
#else
    // one read at each end and one store: they hold up the kernel, by 0.1 us a read on an H200. Without the barrier the
    // compiler reads the clock before the last results are there, and part of the kernel counts as a bubble.
    uvec2 begin = uvec2(0u);
    if (gl_LocalInvocationIndex < 32u) begin = clockRealtime2x32EXT();
    kernel();
    barrier();
    if (FIRST_LANE) stamp_slots.data[slot] = uvec4(begin, clockRealtime2x32EXT());
#endif
#else
    kernel();
#endif
}
