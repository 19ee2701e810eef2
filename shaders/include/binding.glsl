// How a kernel names its buffers, once for two builds: by default their addresses arrive in push constants;
// with DESCRIPTORS they are storage buffers of set 0, which the validation layer can follow.
//
//   BUFFER(0, readonly, Weights, uvec4, weights)     binding, access, type, element, name
//                                                    (access: readonly, writeonly, READWRITE, COHERENT, FIXED, AWAITED)
//   PUSH_BEGIN
//       ADDRESS(Weights, weights)                    every buffer, in binding order, first
//       uint rows;                                   then scalars: uint, int or float, one a line
//   PUSH_END
//
// engine/vulkan/pipelines.py reads these lines to lay out push constants and to find hazards, so they may not
// stand inside #if. Elements are weights.data[i] in both builds.
//
// The build for the persistent mode (RESIDENT; engine/vulkan/joined_source.py) says of each buffer whether it is written
// by any op (RESIDENT_<slot>), and runs a kernel from where it says AWAIT only when what others wrote before is there. A
// kernel without that word waits before it begins. So does the build with FLAGS (flags.glsl); kernels that say AWAIT
// define OWN_AWAIT.
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require

#ifdef FLAGS
#include "flags.glsl"
#else
#define FLAGS_PUSH
#endif

#ifdef RESIDENT
#define ALONE  // RESIDENT_<slot> says it
#elif defined(FLAGS)  // see flag_wait.glsl
#define ALONE devicecoherent
#else
#define ALONE restrict
#endif
#ifdef FLAGS  // Mesa takes "readonly" to mean that nobody writes
#define ACCESS_readonly ALONE
#else
#define ACCESS_readonly ALONE readonly
#endif
#define ACCESS_writeonly ALONE writeonly
#define ACCESS_READWRITE ALONE
#ifdef FLAGS
#define ACCESS_COHERENT ALONE
#else
#define ACCESS_COHERENT ALONE coherent  // read and written, by other workgroups of the same dispatch too
#endif
// Only read, but the compiler does not know: else it may move a load behind a barrier, to where its value is used.
// What is FIXED no op of a token writes before all that read it are done (the state: at its end), what is AWAITED one does.
#define ACCESS_FIXED
#ifdef FLAGS
#define ACCESS_AWAITED ALONE
#else
#define ACCESS_AWAITED
#endif

#if defined(RESIDENT)
#define AWAIT walk_wait();
#elif defined(FLAGS)
#define AWAIT flag_wait();
#else
#define AWAIT
#endif

// Under the Vulkan memory model (RESIDENT, FLAGS) glslang heeds what is said of a member, and not what is said of its block.
#if defined(RESIDENT)
#define BUFFER(slot, access, Type, Element, name) \
    layout(buffer_reference, std430, buffer_reference_align = 16) buffer Type { RESIDENT_##slot ACCESS_##access Element data[]; };
#define ADDRESS(Type, name) Type name;
#define BUFFER_ADDRESS(name) name##_buffer  // as uvec2, to be kept
#elif defined(FLAGS)
#define BUFFER(slot, access, Type, Element, name) \
    layout(buffer_reference, std430, buffer_reference_align = 16) buffer Type { ACCESS_##access Element data[]; };
#define ADDRESS(Type, name) Type name;
#elif defined(DESCRIPTORS)
#define BUFFER(slot, access, Type, Element, name) \
    layout(set = 0, binding = slot, std430) ACCESS_##access buffer Type { Element data[]; } name;
#define ADDRESS(Type, name) uvec2 name##_address;
#else
#define BUFFER(slot, access, Type, Element, name) \
    layout(buffer_reference, std430, buffer_reference_align = 16) ACCESS_##access buffer Type { Element data[]; };
#define ADDRESS(Type, name) Type name;
#endif

#ifdef STAMPS
#ifndef NULL_TWIN
#extension GL_EXT_shader_realtime_clock : require
#endif
layout(buffer_reference, std430, buffer_reference_align = 16) restrict writeonly buffer StampSlots { uvec4 data[]; };
#define PUSH_BEGIN layout(push_constant) uniform Push { StampSlots stamp_slots; FLAGS_PUSH
#else
#define PUSH_BEGIN layout(push_constant) uniform Push { FLAGS_PUSH
#endif
#define PUSH_END };
