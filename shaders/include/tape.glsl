// Words of a record of the tape, and of the results. engine/decode/tape.py mirrors it.
#define RECORD_KERNEL 0u
#define RECORD_FLAGS 1u
#define RECORD_GROUPS_X 2u
#define RECORD_GROUPS_Y 3u
#define RECORD_PUSH 4u  // the kernel's push constants
#define RECORD_WORDS 48u
#define RECORD_WAITS 1u    // for the grid barrier before it
#define RECORD_ARRIVES 2u  // at the grid barrier after it
#define RESULTS_ABORTED 0u
#define RESULTS_TOKENS 4u
#define RESULT_WORDS 8u  // a token
#define RESULT_MADE 0u  // 0: it was not made
#define RESULT_MORE 1u
#define RESULT_LAST 2u  // an end token: nothing is made behind it
#define RESULT_ID 1u
#define RESULT_START 2u
#define RESULT_END 4u
