// What resident_rows.comp does with the sums of its rows: the word `end` of a record, which engine/program/resident_rows.py
// writes.
#define END_MASK 7u
#define ROW_END_STORE 0u
#define ROW_END_ADD 1u
#define ROW_END_BIAS 2u
#define ROW_END_GATE 3u
#define ROW_END_GATE_GELU 4u
#define ROW_END_QKV 5u
#define ROW_END_HEAD 6u
#define END_NORM 8u        // x is RMS-normed first
#define END_ADDS_BIAS 16u  // with ROW_END_QKV
#define END_HALVES 32u     // with ROW_END_QKV: ROPE_HALVES of rope.glsl
// with two sums, of which a lane's next block is on its way too:
#define END_DEEP 64u     // that of the next chunk
#define END_PAIRED 128u  // that of the next part
