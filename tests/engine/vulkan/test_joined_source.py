"""Kernels as functions of one: names that clash, what is renamed and what is not, what cannot be joined."""

from __future__ import annotations

import numpy as np
import pytest

from engine.errors import EngineError
from engine.vulkan.joined_source import Part, join
from engine.vulkan.shaders import compile_glsl

TEMPLATE = """#version 460
#extension GL_EXT_buffer_reference : require
#extension GL_EXT_buffer_reference2 : require
#extension GL_EXT_buffer_reference_uvec2 : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shared_memory_block : require
// EXTENSIONS
layout(local_size_x = 8) in;
#define WALK_SHARED 1
#define WALK_WORD(i) words[i]
layout(std430) shared Walk { uint words[4]; };
uvec3 walk_group, walk_groups;
void walk_wait() {}
// KERNELS
void main() {
    if (!walk_awaits(words[0])) walk_wait();
    switch (words[0]) {
// CASES
    }
}
"""
HEAD = """#version 460
layout(buffer_reference, std430, buffer_reference_align = 16) restrict buffer X { float data[]; };
layout(push_constant) uniform Push {
    X x;
    uint size;
    float scale;
};
"""
ONE = (
    HEAD
    + """
#extension GL_EXT_control_flow_attributes : require
#define TWICE(v) ((v) + (v))
layout(local_size_x = 2 * 4) in;
struct Pair { float x; float size; };
shared float sums[4];
float total(Pair pair) { return TWICE(pair.x) + pair.size; }
void kernel() {
    const vec4 v = vec4(1.0);
    sums[0] = total(Pair(v.x, 2.0)) * scale;
    barrier();
    x.data[gl_WorkGroupID.x + gl_GlobalInvocationID.x] = sums[0] + float(size);
}
void main() { kernel(); }
"""
)
TWO = (
    HEAD
    + """
layout(local_size_x = 4) in;
float first = 0.0, total[2];
float sums(float size) { return size + first; }
void kernel() {
    total[1] = sums(scale);
    if (gl_LocalInvocationIndex < size) x.data[gl_NumWorkGroups.x] = total[1];
}
void main() { kernel(); }
"""
)


def test_kernels_whose_names_clash_are_one_that_compiles() -> None:
    source = join(TEMPLATE, [Part("one", ONE), Part("two", TWO)], 8)
    assert np.frombuffer(compile_glsl(source, "joined"), np.uint32)[0] == 0x07230203  # SPIR-V's magic number
    assert source.count("#extension GL_EXT_control_flow_attributes") == 1
    assert "case 0u: k0_run(); break;" in source and "case 1u: k1_run(); break;" in source


def test_what_is_global_gets_a_name_of_its_own_and_members_keep_theirs() -> None:
    source = join(TEMPLATE, [Part("one", ONE), Part("two", TWO)], 8)
    for line in (
        "struct k0_Pair { float x; float size; };",
        "float k0_total(k0_Pair pair) { return ((pair.x) + (pair.x)) + pair.size; }",
        "k0_sums[0] = k0_total(k0_Pair(v.x, 2.0)) * k0_scale;",
        "float k1_first = 0.0, k1_total[2];",
        "float k1_sums(float k1_size) { return k1_size + k1_first; }",
    ):
        assert line in source
    assert "gl_WorkGroupID" not in source and "gl_NumWorkGroups" not in source


def test_push_constants_come_from_the_records_words_in_the_order_that_pack_gives_them() -> None:
    source = join(TEMPLATE, [Part("one", ONE)], 8)
    for line in (
        "k0_X(uvec2(WALK_WORD(0u), WALK_WORD(1u))).data[walk_group.x + ",
        "k0_size = WALK_WORD(2u);",
        "k0_scale = uintBitsToFloat(WALK_WORD(3u));",
    ):
        assert line in source


def test_what_hides_a_buffers_name_is_not_taken_for_the_buffer() -> None:
    hiding = TWO.replace("float sums(float size) { return size + first; }", "float sums(float x) { return x + first; }")
    source = join(TEMPLATE, [Part("two", hiding)], 8)
    assert "float k0_sums(float k0_x) { return k0_x + k0_first; }" in source
    assert "k0_X(uvec2(WALK_WORD(0u), WALK_WORD(1u))).data[walk_groups.x] = k0_total[1];" in source
    compile_glsl(source, "hiding")


def test_what_others_write_is_not_told_to_be_read_only() -> None:
    shared = TWO.replace("restrict buffer X", "nonprivate readonly buffer X").replace(
        "x.data[gl_NumWorkGroups.x] =", "first +="
    )
    source = join(TEMPLATE, [Part("two", shared.replace("first +=", "first += x.data[0] +"))], 8)
    assert "nonprivate buffer k0_X" in source and "readonly" not in source
    constant = TWO.replace("restrict buffer X", "restrict readonly buffer X").replace(
        "x.data[gl_NumWorkGroups.x] =", "first +="
    )
    assert "restrict readonly buffer k0_X" in join(TEMPLATE, [Part("two", constant)], 8)


def test_a_kernel_with_fewer_invocations_leaves_the_others_idle_unless_it_has_a_barrier() -> None:
    source = join(TEMPLATE, [Part("two", TWO)], 8)
    assert "if (gl_LocalInvocationIndex < 4u) k0_kernel();" in source
    with pytest.raises(EngineError, match="kernel one has 8 invocations a workgroup, not 16"):
        join(TEMPLATE, [Part("one", ONE)], 16)
    with pytest.raises(EngineError, match="kernel two has 4 invocations a workgroup, not 2"):
        join(TEMPLATE, [Part("two", TWO)], 2)


def test_a_kernel_that_awaits_by_itself_is_not_held_up_before() -> None:
    awaiting = TWO.replace("total[1] = sums(scale);", "total[1] = sums(scale); walk_wait();")
    parts = [Part("two", TWO), Part("awaiting", awaiting), Part("two again", TWO), Part("awaiting again", awaiting)]
    assert "bool walk_awaits(uint kernel) { return kernel == 1u || kernel == 3u; }" in join(TEMPLATE, parts, 8)
    assert "bool walk_awaits(uint kernel) { return false; }" in join(TEMPLATE, parts[:1], 8)
