// The "cpu" layout of engine/weights/repack.py: group of 8 rows | block | row | unit, and in the scales plane for each
// group and step of blocks the eight rows' high bits, then their scales.
#define STEP_HIGH_WORDS (8u * HIGH_BITS * STEP)
#define STEP_WORDS (STEP_HIGH_WORDS + 2u * (FIRST_BYTES + SECOND_BYTES))

RowBase group_base(uint group, uint r, uint blocks, uint side) {
    return RowBase((group * blocks * 8u + r) * UNITS, group * (blocks / STEP) * STEP_WORDS, blocks, r, side);
}
RowBase row_base(uint row, uint blocks, uint side) { return group_base(row >> 3, row & 7u, blocks, side); }

// index of the unit-th unit of a row
uint unit_index(RowBase base, uint unit) { return base.quants + unit / UNITS * (8u * UNITS) + unit % UNITS; }

// indices of words in the scales plane: a block's high bits, and the two items of its scales
uint high_index(RowBase base, uint block) {
    return base.scales + block / STEP * STEP_WORDS + (block % STEP * 8u + base.r) * HIGH_BITS;
}
uint first_index(RowBase base, uint block) {
    return base.scales + block / STEP * STEP_WORDS + STEP_HIGH_WORDS + base.r * FIRST_BYTES / 4u;
}
uint second_index(RowBase base, uint block) {
    return base.scales + block / STEP * STEP_WORDS + STEP_HIGH_WORDS + 2u * FIRST_BYTES + base.r * SECOND_BYTES / 4u;
}

// the number of an item among those it shares words with
#define SCALE_ITEM(base, block) (base).r
