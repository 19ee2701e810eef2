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
#else
    const uvec2 begin = clockRealtime2x32EXT();
    kernel();
    barrier();
    if (FIRST_LANE) stamp_slots.data[slot].xy = begin;
#endif
    if (LAST_LANE) stamp_slots.data[slot].zw = clockRealtime2x32EXT();
#else
    kernel();
#endif
}
