// The entry point of every kernel, included last: it calls kernel(). Its twin (STAMPS) also notes the device clock at
// each workgroup's first start and last end; with FLAGS a kernel starts when it has waited. NULL_TWIN, told the address 0,
// leaves kernel() out, which leaves the cost of launching and synchronising alone.
#if defined(STAMPS) && !defined(NULL_TWIN)
#define STAMP_SLOT (gl_WorkGroupID.y * gl_NumWorkGroups.x + gl_WorkGroupID.x)
#ifdef CPU_DEVICE  // no barrier: subgroups run in order, and one would cost more than the kernel, as would holding begin
#define LAST_LANE (gl_LocalInvocationIndex == gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z - 1u)
#define STAMP_BEGIN if (gl_LocalInvocationIndex == 0u) stamp_slots.data[STAMP_SLOT].xy = clockRealtime2x32EXT();
#define STAMP_END if (LAST_LANE) stamp_slots.data[STAMP_SLOT].zw = clockRealtime2x32EXT();
#else
// one read at each end and one store: they hold up the kernel, by 0.1 us a read on an H200. Without the barrier the
// compiler reads the clock before the last results are there, and part of the kernel counts as a bubble.
uvec2 stamp_begin = uvec2(0u);
#define STAMP_BEGIN if (gl_LocalInvocationIndex < 32u) stamp_begin = clockRealtime2x32EXT();
#define STAMP_END \
    barrier(); \
    if (gl_LocalInvocationIndex == 0u) stamp_slots.data[STAMP_SLOT] = uvec4(stamp_begin, clockRealtime2x32EXT());
#endif
#else
#define STAMP_BEGIN
#define STAMP_END
#endif

#include "flag_wait.glsl"

void main() {
#ifndef FLAGS
    STAMP_BEGIN
#elif !defined(OWN_AWAIT)
    flag_wait();
#endif
#ifdef NULL_TWIN
    if (uvec2(stamp_slots) != uvec2(0))
#endif
    kernel();
#if defined(FLAGS) && (defined(NULL_TWIN) || !defined(AWAITS_ALWAYS))
    flag_wait();  // where kernel() had nothing to do
#endif
    STAMP_END
#ifdef FLAGS
    flag_arrive();
#endif
}
