// Weights as engine/weights/repack.py lays them out, read 32 columns ("a block") at a time.
//
// WEIGHT_TYPE names the quantisation (one of WEIGHT_F32 ... below); CPU_DEVICE selects repack's "cpu" layout.
// The kernel defines, before this include, QUANT(base, i) = the i-th 16-byte unit as uvec4, QUANT_WORD(base, i, j) =
// its j-th word, and SCALE(base, i) = the i-th word of the scales plane; `base` is the RowBase of the row at hand.
//
// A weight is d q + m. Two ways to read it, one for each kind of device:
//   block form   one invocation holds a block: load_block, then quad i = columns 4 i to 4 i + 3 (block_quad), with
//                block_scale = d of columns 0-15, d of 16-31, and m
//   lanes form   eight lanes share a block of one row, four columns each (lane_column): lane_quants and lane_scale.
//                On a software device everything but the last shift is then scalar work.

#extension GL_EXT_control_flow_attributes : require

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

#if WEIGHT_TYPE == WEIGHT_F32
#define UNITS 8u
#define PLAIN
#elif WEIGHT_TYPE == WEIGHT_F16 || WEIGHT_TYPE == WEIGHT_BF16
#define UNITS 4u
#define PLAIN
#elif WEIGHT_TYPE == WEIGHT_Q8_0
#define UNITS 2u
#define NO_MIN
#else
#define UNITS 1u
#define NIBBLES
#endif

// Where a row's data begins. `r` is its place among the eight rows of its group ("cpu" layout), `side` is for
// kernels that read two tensors.
struct RowBase {
    uint quants;
    uint scales;
    uint blocks;
    uint r;
    uint side;
};

#ifdef CPU_DEVICE
// group of 8 rows | block | row | unit
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
    return RowBase(group * blocks * 8u + r, group * GROUP_SCALE_WORDS(blocks), blocks, r, side);
}
RowBase row_base(uint row, uint blocks, uint side) { return group_base(row >> 3, row & 7u, blocks, side); }
uint unit_index(RowBase base, uint block, uint unit) { return (base.quants + block * 8u) * UNITS + unit; }

// indices of a block's words in the scales plane, and the half of the word for 16-bit values
#define HALF_SHIFT(base, block) ((base.r & 1u) * 16u)
#if WEIGHT_TYPE == WEIGHT_Q4_0 || WEIGHT_TYPE == WEIGHT_Q8_0
uint d_index(RowBase base, uint block) { return base.scales + block * 4u + (base.r >> 1); }
#elif WEIGHT_TYPE == WEIGHT_Q4_1
uint dm_index(RowBase base, uint block) { return base.scales + block * 8u + base.r; }
#elif WEIGHT_TYPE == WEIGHT_Q5_0
uint high_index(RowBase base, uint block) { return base.scales + block * 12u + base.r; }
uint d_index(RowBase base, uint block) { return base.scales + block * 12u + 8u + (base.r >> 1); }
#elif WEIGHT_TYPE == WEIGHT_Q5_1
uint high_index(RowBase base, uint block) { return base.scales + block * 16u + base.r; }
uint dm_index(RowBase base, uint block) { return base.scales + block * 16u + 8u + base.r; }
#elif WEIGHT_TYPE == WEIGHT_Q4_K
uint super_index(RowBase base, uint block) { return base.scales + (block >> 3) * 32u + base.r * 4u; }
#elif WEIGHT_TYPE == WEIGHT_Q6_K
uint high_index(RowBase base, uint block) {
    return base.scales + (block >> 3) * 164u + (block & 7u) * 16u + base.r * 2u;
}
uint sub_index(RowBase base, uint block) {
    return base.scales + (block >> 3) * 164u + 128u + base.r * 4u + ((block & 7u) >> 1);
}
uint d_index(RowBase base, uint block) { return base.scales + (block >> 3) * 164u + 160u + (base.r >> 1); }
#endif

#else
// row | unit | block, so that lanes with consecutive blocks read consecutive 16-byte units
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
uint unit_index(RowBase base, uint block, uint unit) { return base.quants + unit * base.blocks + block; }

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
#endif

// ---- scales: (d of columns 0-15, d of columns 16-31, m) ----

vec3 block_scale(RowBase base, uint block) {
#if WEIGHT_TYPE == WEIGHT_Q4_0
    const float d = unpackHalf2x16(SCALE(base, d_index(base, block)) >> HALF_SHIFT(base, block)).x;
    return vec3(d, d, -8.0 * d);
#elif WEIGHT_TYPE == WEIGHT_Q5_0
    const float d = unpackHalf2x16(SCALE(base, d_index(base, block)) >> HALF_SHIFT(base, block)).x;
    return vec3(d, d, -16.0 * d);
#elif WEIGHT_TYPE == WEIGHT_Q8_0
    const float d = unpackHalf2x16(SCALE(base, d_index(base, block)) >> HALF_SHIFT(base, block)).x;
    return vec3(d, d, 0.0);
#elif WEIGHT_TYPE == WEIGHT_Q4_1 || WEIGHT_TYPE == WEIGHT_Q5_1
    return unpackHalf2x16(SCALE(base, dm_index(base, block))).xxy;
#elif WEIGHT_TYPE == WEIGHT_Q4_K
    // ggml's get_scale_min_k4: 6 bits each of scale and minimum in 12 bytes, the upper four split over two places
    const uint at = super_index(base, block);
    const vec2 dm = unpackHalf2x16(SCALE(base, at));
    const uint a = SCALE(base, at + 1u), b = SCALE(base, at + 2u), c = SCALE(base, at + 3u);
    const uint shift = (block & 3u) * 8u;
    const bool upper = (block & 4u) != 0u;
    const uint sa = a >> shift, sb = b >> shift, sc = c >> shift;
    const uint scale = upper ? (sc & 15u) | ((sa >> 2) & 48u) : sa & 63u;
    const uint minimum = upper ? ((sc >> 4) & 15u) | ((sb >> 2) & 48u) : sb & 63u;
    const float d = dm.x * float(scale);
    return vec3(d, d, -dm.y * float(minimum));
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const uint pair = SCALE(base, sub_index(base, block)) >> ((block & 1u) * 16u);
    const float d = unpackHalf2x16(SCALE(base, d_index(base, block)) >> HALF_SHIFT(base, block)).x;
    // m is -32 d of each half: quad_weights and the kernels take it off
    return vec3(d * float(bitfieldExtract(int(pair), 0, 8)), d * float(bitfieldExtract(int(pair), 8, 8)), 0.0);
#else
    return vec3(1.0, 1.0, 0.0);
#endif
}

// ---- block form ----

struct Block {
    uvec4 units[UNITS];
    uvec2 high;  // the fifth bits (Q5), or bits 4 and 5 (Q6_K)
};

uvec2 load_high(RowBase base, uint block) {
#if WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1
    return uvec2(SCALE(base, high_index(base, block)), 0u);
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const uint at = high_index(base, block);
    return uvec2(SCALE(base, at), SCALE(base, at + 1u));
#else
    return uvec2(0u);
#endif
}

Block load_block(RowBase base, uint block) {
    Block result;
    [[unroll]] for (uint unit = 0u; unit < UNITS; ++unit) result.units[unit] = QUANT(base, unit_index(base, block, unit));
    result.high = load_high(base, block);
    return result;
}

vec4 byte_floats(uint word) {
    return vec4(float(word & 255u), float((word >> 8) & 255u), float((word >> 16) & 255u), float(word >> 24));
}

// the q of columns 4 i to 4 i + 3, from the unit that holds them (see unit_of)
vec4 unit_quad(uvec4 unit, uvec2 high, uint i) {
#if WEIGHT_TYPE == WEIGHT_F32
    return uintBitsToFloat(unit);
#elif WEIGHT_TYPE == WEIGHT_F16
    const uvec2 pair = (i & 1u) == 0u ? unit.xy : unit.zw;
    return vec4(unpackHalf2x16(pair.x), unpackHalf2x16(pair.y));
#elif WEIGHT_TYPE == WEIGHT_BF16
    const uvec2 pair = (i & 1u) == 0u ? unit.xy : unit.zw;
    return uintBitsToFloat(uvec4(pair.x << 16, pair.x & 0xffff0000u, pair.y << 16, pair.y & 0xffff0000u));
#elif WEIGHT_TYPE == WEIGHT_Q8_0
    const int word = int(unit[i & 3u]);
    return vec4(
        float(bitfieldExtract(word, 0, 8)), float(bitfieldExtract(word, 8, 8)), float(bitfieldExtract(word, 16, 8)),
        float(word >> 24)
    );
#else
    const uint word = unit[i & 3u];
    const uint shift = (i >> 2) * 4u;
#if WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1
    // column 4 i + j has its fifth bit at 8 (i & 3) + 2 j, one further in the upper half
    const uint bits = high.x >> ((i & 3u) * 8u + (i >> 2));
    return byte_floats(((word >> shift) & 0x0f0f0f0fu) | ((bits << 4) & 0x10u) | ((bits << 10) & 0x1000u)
        | ((bits << 16) & 0x100000u) | ((bits << 22) & 0x10000000u));
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    // bits 4 and 5 of column 4 i + j at 16 (i & 1) + 4 j of word (i & 3) / 2, two further in the upper half
    const uint bits = ((i & 2u) == 0u ? high.x : high.y) >> ((i & 1u) * 16u + (i >> 2) * 2u);
    return byte_floats(((word >> shift) & 0x0f0f0f0fu) | ((bits << 4) & 0x30u) | ((bits << 8) & 0x3000u)
        | ((bits << 12) & 0x300000u) | ((bits << 16) & 0x30000000u));
#elif defined(CPU_DEVICE)
    // no byte-to-float conversion there: a shift and a mask an element is the shortest
    return vec4(float(int((word >> shift) & 15u)), float(int((word >> (shift + 8u)) & 15u)),
        float(int((word >> (shift + 16u)) & 15u)), float(int((word >> (shift + 24u)) & 15u)));
#else
    return byte_floats((word >> shift) & 0x0f0f0f0fu);
#endif
#endif
}

uint unit_of(uint i) { return i * UNITS / 8u; }

vec4 block_quad(Block block, uint i) { return unit_quad(block.units[unit_of(i)], block.high, i); }

// the weights of quad i from its q and the block's scale
vec4 quad_weights(vec4 q, vec3 scale, uint i) {
#if defined(PLAIN)
    return q;
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    return (i < 4u ? scale.x : scale.y) * (q - 32.0);
#elif defined(NO_MIN)
    return scale.x * q;
#else
    return fma(vec4(scale.x), q, vec4(scale.z));
#endif
}

// columns 4 i to 4 i + 3 of a block; i may vary from lane to lane
vec4 load_weights(RowBase base, uint block, uint i) {
    const vec4 q = unit_quad(QUANT(base, unit_index(base, block, unit_of(i))), load_high(base, block), i);
    return quad_weights(q, block_scale(base, block), i);
}

#ifdef CPU_DEVICE
// ---- lanes form ----

// the column of a block that a lane (0-7) takes in step s (0-3)
uint lane_column(uint lane, uint s) {
#if WEIGHT_TYPE == WEIGHT_F32 || WEIGHT_TYPE == WEIGHT_Q8_0
    return s * 8u + lane;
#elif WEIGHT_TYPE == WEIGHT_F16 || WEIGHT_TYPE == WEIGHT_BF16
    return (s >> 1) * 16u + lane * 2u + (s & 1u);
#else
    return (lane & 1u) * 16u + s * 4u + (lane >> 1);
#endif
}

#if WEIGHT_TYPE == WEIGHT_Q8_0
float lane_byte(uint low, uint high, uint lane) {
    return float(int((lane < 4u ? low : high) << (24u - (lane & 3u) * 8u)) >> 24);
}
#endif

// a lane's four q of a block
vec4 lane_quants(RowBase base, uint block, uint lane) {
    const uint at = unit_index(base, block, 0u);
#if WEIGHT_TYPE == WEIGHT_F32
    const uint unit = at + (lane >> 2), word = lane & 3u;
    return uintBitsToFloat(uvec4(QUANT_WORD(base, unit, word), QUANT_WORD(base, unit + 2u, word),
        QUANT_WORD(base, unit + 4u, word), QUANT_WORD(base, unit + 6u, word)));
#elif WEIGHT_TYPE == WEIGHT_F16 || WEIGHT_TYPE == WEIGHT_BF16
    const uint unit = at + (lane >> 2), word = lane & 3u;
    const uint low = QUANT_WORD(base, unit, word), high = QUANT_WORD(base, unit + 2u, word);
#if WEIGHT_TYPE == WEIGHT_F16
    return vec4(unpackHalf2x16(low), unpackHalf2x16(high));
#else
    return uintBitsToFloat(uvec4(low << 16, low & 0xffff0000u, high << 16, high & 0xffff0000u));
#endif
#elif WEIGHT_TYPE == WEIGHT_Q8_0
    const uvec4 a = QUANT(base, at), b = QUANT(base, at + 1u);
    return vec4(lane_byte(a.x, a.y, lane), lane_byte(a.z, a.w, lane), lane_byte(b.x, b.y, lane), lane_byte(b.z, b.w, lane));
#else
    uvec4 q = (QUANT(base, at) >> (lane * 4u)) & 15u;
#if WEIGHT_TYPE == WEIGHT_Q5_0 || WEIGHT_TYPE == WEIGHT_Q5_1
    const uint bits = SCALE(base, high_index(base, block)) >> lane;
    q |= uvec4(bits << 4, bits >> 4, bits >> 12, bits >> 20) & 16u;
#elif WEIGHT_TYPE == WEIGHT_Q6_K
    const uint word = high_index(base, block);
    const uint low = SCALE(base, word) >> (lane * 2u), high = SCALE(base, word + 1u) >> (lane * 2u);
    q |= uvec4(low << 4, low >> 12, high << 4, high >> 12) & 48u;
#endif
    return vec4(ivec4(q));
#endif
}

// (d, m) of a lane's columns of a block
vec2 lane_scale(RowBase base, uint block, uint lane) {
    const vec3 scale = block_scale(base, block);
#if WEIGHT_TYPE == WEIGHT_Q6_K
    const float d = (lane & 1u) == 0u ? scale.x : scale.y;
    return vec2(d, -32.0 * d);
#else
    return scale.xz;
#endif
}
#endif
