// Barrier policy "flags": no pipeline barriers between a token's dispatches. Each workgroup waits in memory until all
// workgroups of the dispatches it depends on have arrived, and arrives itself when it is done. Before it waits it may load
// what never changes: so launching, and the first loads of weights, happen while the kernel before still runs.
//
// One counter serves a token: `flag_target` is what all dispatches before this one's last barrier add to it. The last
// dispatch of a token takes off what all have added. FLAGS is how often a workgroup polls before it gives up, and with it
// all others. engine/decode/flags.py has the other half.
#pragma use_vulkan_memory_model
#extension GL_KHR_memory_scope_semantics : require

layout(buffer_reference, std430, buffer_reference_align = 16) buffer FlagReport { nonprivate uint stuck; };
layout(buffer_reference, std430, buffer_reference_align = 16) buffer FlagControl {
    nonprivate uint arrived;
    nonprivate uint stuck;
    FlagReport report;  // host memory
};
#define FLAGS_PUSH FlagControl flag_control; uint flag_target; uint flag_arrivals;

void flag_wait();
void flag_join();  // a barrier for buffers and shared memory
