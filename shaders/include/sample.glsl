// What sample_scan leaves for sample_pick: in uint words, `padded` keys, then (key, id) of each part's largest logit, an
// even number of parts. engine/program/sample.py mirrors GROUP_IDS (`padded` is the vocabulary rounded up to it) and
// PART_IDS. head_groups.comp leaves the same, a part a workgroup.
#define GROUP_IDS 1024u  // ids a workgroup of sample_scan looks at
#ifdef CPU_DEVICE
// subgroup operations are slow on a software device: a part is a lane's
#define SCAN_LANES 32
#define PART_LANES 1
#else
#define PART_LANES SUBGROUP_SIZE
#endif
#define LANE_IDS (GROUP_IDS / SCAN_LANES)
#define PART_IDS (LANE_IDS * PART_LANES)
