// Words of a StepParams slot: what the host says about the next token. engine/decode/state.py mirrors it.
#define STEP_TEMPERATURE 0u  // float bits
#define STEP_TOP_K 1u
#define STEP_TOP_P 2u           // float bits
#define STEP_MIN_P 3u           // float bits
#define STEP_REPEAT_PENALTY 4u  // float bits
#define STEP_SEED_LOW 5u
#define STEP_SEED_HIGH 6u
#define STEP_STOP_COUNT 7u  // end ids that set STATE_DONE
#define STEP_STOPS 8u       // the ids themselves, 56 at most
