// The entry point of every kernel, included last: it calls kernel(). Its twin (STAMPS) also notes the device clock at
// each workgroup's first start and last end; with STAMP_TWICE it does so twice, which is for nothing but to see what it
// costs. NULL_TWIN, told the address 0, returns at once, which leaves the cost of launching and synchronising alone.
#if defined(STAMPS) && !defined(NULL_TWIN)
#ifdef STAMP_TWICE
#define STAMP(word) word word
#else
#define STAMP(word) word
#endif
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
    STAMP(if (FIRST_LANE) stamp_slots.data[slot].xy = clockRealtime2x32EXT();)
    kernel();
#else
    uvec2 begin;
    STAMP(begin = clockRealtime2x32EXT();)
    kernel();
    barrier();
    STAMP(if (FIRST_LANE) stamp_slots.data[slot].xy = begin;)
#endif
    STAMP(if (LAST_LANE) stamp_slots.data[slot].zw = clockRealtime2x32EXT();)
#else
    kernel();
#endif
}
