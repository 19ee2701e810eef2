// The types that WEIGHT_TYPE names, and what a kernel has to know of their planes: the other half of the table in
// engine/weights/formats.py.
#define WEIGHT_F32 1
#define WEIGHT_F16 2
#define WEIGHT_BF16 3
#define WEIGHT_Q4_0 4
#define WEIGHT_Q4_1 5
#define WEIGHT_Q5_0 6
#define WEIGHT_Q5_1 7
#define WEIGHT_Q8_0 8
#define WEIGHT_IQ4_NL 9
#define WEIGHT_MXFP4 10
#define WEIGHT_Q2_K 11
#define WEIGHT_Q3_K 12
#define WEIGHT_Q4_K 13
#define WEIGHT_Q5_K 14
#define WEIGHT_Q6_K 15
#define WEIGHT_IQ4_XS 16

// LOW_BITS and HIGH_BITS: bits of a quant in its unit, and beside it (a word a bit for each block)
// OFFSET: what is subtracted from a quant; CODEBOOK: it is the place of its value in a table
// MINIMUM: a weight is d q + m, not d (q - OFFSET); HALF_SCALES: each half of a block has its own; PLAIN: none has any
// STEP: blocks that share scales; FIRST_BYTES, SECOND_BYTES: the two items of these
#if WEIGHT_TYPE == WEIGHT_F32
#define LOW_BITS 32
#define PLAIN
#elif WEIGHT_TYPE == WEIGHT_F16 || WEIGHT_TYPE == WEIGHT_BF16
#define LOW_BITS 16
#define PLAIN
#elif WEIGHT_TYPE == WEIGHT_Q4_0
#define OFFSET 8
#define FIRST_BYTES 2u
#elif WEIGHT_TYPE == WEIGHT_Q4_1
#define MINIMUM
#define FIRST_BYTES 4u
#elif WEIGHT_TYPE == WEIGHT_Q5_0
#define HIGH_BITS 1
#define OFFSET 16
#define FIRST_BYTES 2u
#elif WEIGHT_TYPE == WEIGHT_Q5_1
#define HIGH_BITS 1
#define MINIMUM
#define FIRST_BYTES 4u
#elif WEIGHT_TYPE == WEIGHT_Q8_0
#define LOW_BITS 8
#define FIRST_BYTES 2u
#elif WEIGHT_TYPE == WEIGHT_IQ4_NL
#define CODEBOOK uvec4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u)
#define FIRST_BYTES 2u
#elif WEIGHT_TYPE == WEIGHT_MXFP4
#define CODEBOOK uvec4(0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu)
#define FIRST_BYTES 1u
#elif WEIGHT_TYPE == WEIGHT_Q2_K
#define LOW_BITS 2
#define MINIMUM
#define HALF_SCALES
#define STEP 8u
#define FIRST_BYTES 16u
#define SECOND_BYTES 4u
#elif WEIGHT_TYPE == WEIGHT_Q3_K
#define LOW_BITS 2
#define HIGH_BITS 1
#define OFFSET 4
#define HALF_SCALES
#define STEP 8u
#define FIRST_BYTES 16u
#elif WEIGHT_TYPE == WEIGHT_Q4_K
#define MINIMUM
#define STEP 8u
#define FIRST_BYTES 16u
#elif WEIGHT_TYPE == WEIGHT_Q5_K
#define HIGH_BITS 1
#define MINIMUM
#define STEP 8u
#define FIRST_BYTES 16u
#elif WEIGHT_TYPE == WEIGHT_Q6_K
#define HIGH_BITS 2
#define OFFSET 32
#define HALF_SCALES
#define STEP 8u
#define FIRST_BYTES 16u
#define SECOND_BYTES 2u
#elif WEIGHT_TYPE == WEIGHT_IQ4_XS
#define CODEBOOK uvec4(0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u)
#define STEP 8u
#define FIRST_BYTES 8u
#endif

#ifndef LOW_BITS
#define LOW_BITS 4
#endif
#ifndef HIGH_BITS
#define HIGH_BITS 0
#endif
#ifndef OFFSET
#define OFFSET 0
#endif
#ifndef STEP
#define STEP 1u
#endif
#ifndef FIRST_BYTES
#define FIRST_BYTES 0u
#endif
#ifndef SECOND_BYTES
#define SECOND_BYTES 0u
#endif

// QUANT_ELEMENT: a unit, what the quants plane is read in; UNIT_QUADS: how many quads (four neighbouring columns) it
// holds; UNITS: units a block
#if LOW_BITS == 2
#define QUANT_ELEMENT uvec2
#define UNIT_QUADS 8
#else
#define QUANT_ELEMENT uvec4
#define UNIT_QUADS (32 / LOW_BITS)
#endif
#define UNITS (8 / UNIT_QUADS)

// what a kernel of the "gpu" layout may take a scales plane in, SCALE_VECTOR where one element is all scales of a step:
// SCALE(base, i) is still its i-th word
#if WEIGHT_TYPE == WEIGHT_Q3_K || WEIGHT_TYPE == WEIGHT_Q4_K || WEIGHT_TYPE == WEIGHT_Q5_K
#define SCALE_ELEMENT uvec4
#define SCALE_WORD(words, i) words[(i) / 4u][(i) % 4u]
#elif WEIGHT_TYPE == WEIGHT_IQ4_XS
#define SCALE_ELEMENT uvec2
#define SCALE_WORD(words, i) words[(i) / 2u][(i) % 2u]
#else
#define SCALE_ELEMENT uint
#define SCALE_WORD(words, i) words[i]
#endif
