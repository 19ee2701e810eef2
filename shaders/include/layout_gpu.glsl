// The "gpu" layout of engine/weights/repack.py: row | block | unit, and in the scales plane row | high bits | scales.
#define ITEM_WORDS(blocks, bytes) (((blocks) / STEP * (bytes) + 3u) / 4u)
#define ROW_SCALE_WORDS(blocks) \
    ((blocks) * HIGH_BITS + ITEM_WORDS(blocks, FIRST_BYTES) + ITEM_WORDS(blocks, SECOND_BYTES))

RowBase row_base(uint row, uint blocks, uint side) {
    return RowBase(row * UNITS * blocks, row * ROW_SCALE_WORDS(blocks), blocks, 0u, side);
}

// index of the unit-th unit of a row
uint unit_index(RowBase base, uint unit) { return base.quants + unit; }

// indices of words in the scales plane: a block's high bits, and the two items of its scales
uint high_index(RowBase base, uint block) { return base.scales + block * HIGH_BITS; }
uint first_index(RowBase base, uint block) {
    return base.scales + base.blocks * HIGH_BITS + block / STEP * FIRST_BYTES / 4u;
}
uint second_index(RowBase base, uint block) {
    return base.scales + base.blocks * HIGH_BITS + ITEM_WORDS(base.blocks, FIRST_BYTES) + block / STEP * SECOND_BYTES / 4u;
}

// the number of an item among those it shares words with
#define SCALE_ITEM(base, block) ((block) / STEP)
