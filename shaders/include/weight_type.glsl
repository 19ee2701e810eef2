// The types that WEIGHT_TYPE names, and how a kernel reads their planes.
#define WEIGHT_F32 1
#define WEIGHT_F16 2
#define WEIGHT_BF16 3
#define WEIGHT_Q4_0 4
#define WEIGHT_Q4_1 5
#define WEIGHT_Q5_0 6
#define WEIGHT_Q5_1 7
#define WEIGHT_Q8_0 8
#define WEIGHT_Q4_K 9
#define WEIGHT_Q6_K 10

// UNIT_QUADS: how many quads (four neighbouring columns) a 16-byte unit holds
#if WEIGHT_TYPE == WEIGHT_F32
#define UNIT_QUADS 1
#define PLAIN
#elif WEIGHT_TYPE == WEIGHT_F16 || WEIGHT_TYPE == WEIGHT_BF16
#define UNIT_QUADS 2
#define PLAIN
#elif WEIGHT_TYPE == WEIGHT_Q8_0
#define UNIT_QUADS 4
#define NO_MIN
#else
#define UNIT_QUADS 8
#endif
#define UNITS (8 / UNIT_QUADS)

// what a kernel of the "gpu" layout may take a scales plane in: SCALE(base, i) is still its i-th word
#if WEIGHT_TYPE == WEIGHT_Q4_K
#define SCALE_ELEMENT uvec4
#define SCALE_WORD(words, i) words[(i) / 4u][(i) % 4u]
#else
#define SCALE_ELEMENT uint
#define SCALE_WORD(words, i) words[i]
#endif
