// What kernels with FLAGS wait and arrive by (flags.glsl); the push constants stand before it.
#ifdef FLAGS
bool flag_waited = false;

// Vulkan's memory model asks for accesses to be made available and visible in the workgroup, for which NVIDIA's compiler has
// a fence (0.1 us of each kernel on an H200). Where a barrier orders memory by itself only the compiler has to know of it.
void flag_join() {
#ifdef BARRIERS_ORDER_MEMORY
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeSubgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared, gl_SemanticsAcquireRelease);
#else
    controlBarrier(gl_ScopeWorkgroup, gl_ScopeWorkgroup, gl_StorageSemanticsBuffer | gl_StorageSemanticsShared,
        gl_SemanticsAcquireRelease | gl_SemanticsMakeAvailable | gl_SemanticsMakeVisible);
#endif
}

void flag_poll() {
    for (uint polls = 0u; atomicLoad(flag_control.arrived, gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed) < flag_target; ++polls) {
        if (polls % 64u != 63u) continue;
        if (polls > uint(FLAGS)) {
            atomicStore(flag_control.stuck, 1u, gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed);
            flag_control.report.stuck = 1u;
        }
        if (atomicLoad(flag_control.stuck, gl_ScopeDevice, gl_StorageSemanticsNone, gl_SemanticsRelaxed) != 0u) break;
    }
}

// A kernel that says AWAIT calls it there, others before they begin. There is no acquiring fence, which costs an H200 0.4 us:
// what others write is loaded device-coherently (binding.glsl), past caches that other workgroups do not share, and behind
// this barrier. Vulkan does not promise that this is enough; the check at start-up reads data so (engine/decode/flags.py).
void flag_wait() {
    if (flag_waited) return;
    flag_waited = true;
    if (gl_LocalInvocationIndex == 0u) flag_poll();
    flag_join();
    STAMP_BEGIN
}

void flag_arrive() {
    flag_join();
    if (gl_LocalInvocationIndex == 0u) {
        atomicAdd(flag_control.arrived, flag_arrivals, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease | gl_SemanticsMakeAvailable);
    }
}
#endif
