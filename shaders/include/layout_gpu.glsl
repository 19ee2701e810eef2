// The "gpu" layout of engine/weights/repack.py: row | unit, and in the scales plane row | high bits | scales.
//
// A tile of 8 blocks is transposed: unit l of it holds quads l, l + TILE_UNITS, l + 2 TILE_UNITS, ... Lanes that take
// consecutive units then read consecutive quads of x at each step, while a row's bytes stay where they were.
// The blocks after the last whole tile (RAGGED) and float weights keep column order.

#define TILE_UNITS (64u / UNIT_QUADS)
#ifndef RAGGED
#define RAGGED 0
#endif

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

// What a unit covers: place p holds quad `quad + p * quad_step`, of block `block + p * block_step` (p < UNIT_QUADS).
struct Cover {
    uint quad;
    uint quad_step;
    uint block;
    uint block_step;
};

Cover unit_cover(RowBase base, uint unit) {
#ifdef PLAIN
    return Cover(unit * UNIT_QUADS, 1u, 0u, 0u);
#else
#if RAGGED
    if (unit >= base.blocks / 8u * TILE_UNITS) return Cover(unit * UNIT_QUADS, 1u, unit / UNITS, 0u);
#endif
    const uint tile = unit / TILE_UNITS, l = unit % TILE_UNITS;
    return Cover(tile * 64u + l, TILE_UNITS, tile * 8u + l / 8u, TILE_UNITS / 8u);
#endif
}

// (unit, place in it) of a quad of a row
uvec2 quad_place(RowBase base, uint quad) {
#ifdef PLAIN
    return uvec2(quad / UNIT_QUADS, quad % UNIT_QUADS);
#else
#if RAGGED
    if (quad >= base.blocks / 8u * 64u) return uvec2(quad / UNIT_QUADS, quad % UNIT_QUADS);
#endif
    return uvec2(quad / 64u * TILE_UNITS + quad % TILE_UNITS, quad % 64u / TILE_UNITS);
#endif
}

// indices of a block's words in the scales plane, and the half of the word where the value has 16 bits
#if WEIGHT_TYPE == WEIGHT_Q6_K
#define HALF_SHIFT(base, block) ((((block) >> 3) & 1u) * 16u)
uint high_index(RowBase base, uint unit) { return base.scales + unit * 2u; }
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
uint high_index(RowBase base, uint unit) { return base.scales + unit; }
uint d_index(RowBase base, uint block) { return base.scales + base.blocks + (block >> 1); }
#elif WEIGHT_TYPE == WEIGHT_Q5_1
uint high_index(RowBase base, uint unit) { return base.scales + unit; }
uint dm_index(RowBase base, uint block) { return base.scales + base.blocks + block; }
#elif WEIGHT_TYPE == WEIGHT_Q4_K
uint super_index(RowBase base, uint block) { return base.scales + (block >> 3) * 4u; }
#endif
