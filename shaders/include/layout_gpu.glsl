// The "gpu" layout of engine/weights/repack.py: row | block | unit, and in the scales plane row | high bits | scales.

#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q8_0
#define ROW_SCALE_WORDS(blocks) (((blocks) + 1u) / 2u)
#elif WEIGHT_TYPE == WEIGHT_Q4_1
#define ROW_SCALE_WORDS(blocks) (blocks)
#elif WEIGHT_TYPE == WEIGHT_Q5_0
#define ROW_SCALE_WORDS(blocks) ((blocks) + ((blocks) + 1u) / 2u)
#elif WEIGHT_TYPE == WEIGHT_Q5_1
#define ROW_SCALE_WORDS(blocks) ((blocks) * 2u)
#elif WEIGHT_TYPE == WEIGHT_Q4_K
#define ROW_SCALE_WORDS(blocks) ((blocks) / 2u)
#elif WEIGHT_TYPE == WEIGHT_Q6_K
#define ROW_SCALE_WORDS(blocks) ((blocks) / 2u * 5u + ((blocks) / 8u + 1u) / 2u)
#else
#define ROW_SCALE_WORDS(blocks) 0u
#endif

RowBase row_base(uint row, uint blocks, uint side) {
    return RowBase(row * UNITS * blocks, row * ROW_SCALE_WORDS(blocks), blocks, 0u, side);
}

// index of the unit-th unit of a row
uint unit_index(RowBase base, uint unit) { return base.quants + unit; }

// (unit, place in it) of a quad of a row
uvec2 quad_place(RowBase base, uint quad) { return uvec2(quad / UNIT_QUADS, quad % UNIT_QUADS); }

// indices of a block's words in the scales plane, and the half of the word where the value has 16 bits
#if WEIGHT_TYPE == WEIGHT_Q6_K
#define HALF_SHIFT(base, block) ((((block) >> 3) & 1u) * 16u)
uint high_index(RowBase base, uint block) { return base.scales + block * 2u; }
uint sub_index(RowBase base, uint block) { return base.scales + base.blocks * 2u + (block >> 1); }
uint d_index(RowBase base, uint block) { return base.scales + base.blocks / 2u * 5u + (block >> 4); }
#else
#define HALF_SHIFT(base, block) (((block) & 1u) * 16u)
#endif
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q8_0
uint d_index(RowBase base, uint block) { return base.scales + (block >> 1); }
#elif WEIGHT_TYPE == WEIGHT_Q4_1
uint dm_index(RowBase base, uint block) { return base.scales + block; }
#elif WEIGHT_TYPE == WEIGHT_Q5_0
uint high_index(RowBase base, uint block) { return base.scales + block; }
uint d_index(RowBase base, uint block) { return base.scales + base.blocks + (block >> 1); }
#elif WEIGHT_TYPE == WEIGHT_Q5_1
uint high_index(RowBase base, uint block) { return base.scales + block; }
uint dm_index(RowBase base, uint block) { return base.scales + base.blocks + block; }
#elif WEIGHT_TYPE == WEIGHT_Q4_K
uint super_index(RowBase base, uint block) { return base.scales + (block >> 3) * 4u; }
#endif
