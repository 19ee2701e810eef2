// The "cpu" layout of engine/weights/repack.py: group of 8 rows | block | row | unit, quads in column order, and in
// the scales plane for each group and block the eight rows' high bits, then their scales.

#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q8_0
#define GROUP_SCALE_WORDS(blocks) ((blocks) * 4u)
#elif WEIGHT_TYPE == WEIGHT_Q4_1
#define GROUP_SCALE_WORDS(blocks) ((blocks) * 8u)
#elif WEIGHT_TYPE == WEIGHT_Q5_0
#define GROUP_SCALE_WORDS(blocks) ((blocks) * 12u)
#elif WEIGHT_TYPE == WEIGHT_Q5_1
#define GROUP_SCALE_WORDS(blocks) ((blocks) * 16u)
#elif WEIGHT_TYPE == WEIGHT_Q4_K
#define GROUP_SCALE_WORDS(blocks) ((blocks) / 8u * 32u)
#elif WEIGHT_TYPE == WEIGHT_Q6_K
#define GROUP_SCALE_WORDS(blocks) ((blocks) / 8u * 164u)
#else
#define GROUP_SCALE_WORDS(blocks) 0u
#endif

RowBase group_base(uint group, uint r, uint blocks, uint side) {
    return RowBase((group * blocks * 8u + r) * UNITS, group * GROUP_SCALE_WORDS(blocks), blocks, r, side);
}
RowBase row_base(uint row, uint blocks, uint side) { return group_base(row >> 3, row & 7u, blocks, side); }

// index of the unit-th unit of a row
uint unit_index(RowBase base, uint unit) { return base.quants + unit / UNITS * (8u * UNITS) + unit % UNITS; }

// (unit, place in it) of a quad of a row
uvec2 quad_place(RowBase base, uint quad) { return uvec2(quad / UNIT_QUADS, quad % UNIT_QUADS); }

// indices of a block's words in the scales plane, and the half of the word where the value has 16 bits
#define HALF_SHIFT(base, block) ((base.r & 1u) * 16u)
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q8_0
uint d_index(RowBase base, uint block) { return base.scales + block * 4u + (base.r >> 1); }
#elif WEIGHT_TYPE == WEIGHT_Q4_1
uint dm_index(RowBase base, uint block) { return base.scales + block * 8u + base.r; }
#elif WEIGHT_TYPE == WEIGHT_Q5_0
uint high_index(RowBase base, uint unit) { return base.scales + unit * 12u + base.r; }
uint d_index(RowBase base, uint block) { return base.scales + block * 12u + 8u + (base.r >> 1); }
#elif WEIGHT_TYPE == WEIGHT_Q5_1
uint high_index(RowBase base, uint unit) { return base.scales + unit * 16u + base.r; }
uint dm_index(RowBase base, uint block) { return base.scales + block * 16u + 8u + base.r; }
#elif WEIGHT_TYPE == WEIGHT_Q4_K
uint super_index(RowBase base, uint block) { return base.scales + (block >> 3) * 32u + base.r * 4u; }
#elif WEIGHT_TYPE == WEIGHT_Q6_K
uint high_index(RowBase base, uint unit) {
    return base.scales + (unit >> 3) * 164u + (unit & 7u) * 16u + base.r * 2u;
}
uint sub_index(RowBase base, uint block) {
    return base.scales + (block >> 3) * 164u + 128u + base.r * 4u + ((block & 7u) >> 1);
}
uint d_index(RowBase base, uint block) { return base.scales + (block >> 3) * 164u + 160u + (base.r >> 1); }
#endif
