// Words of the State buffer: what the device carries from token to token. engine/decode/state.py mirrors it.
#define STATE_POSITION 0u  // tokens in the KV cache: where the next fed token stands
#define STATE_TOKEN 1u     // the id to feed next
#define STATE_DONE 2u      // 1 once an end id was sampled: later tokens in flight write nothing
#define STATE_MARK 3u      // the token of a prompt chunk after which the recurrent state is kept too, or NO_ID
#define STATE_HISTORY 64u  // the last 64 ids: the id at absolute position p is word 64 + p % 64
#define HISTORY_IDS 64u
#define NO_ID 0xffffffffu
