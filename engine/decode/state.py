"""The State and StepParams buffers as bytes; the word offsets mirror shaders/include/state.glsl and step.glsl."""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence

from engine.decode.sampling import Sampling

STATE_BYTES = 512
STATE_POSITION = 0
STATE_TOKEN = 1
STATE_DONE = 2
STATE_MARK = 3
STATE_HISTORY = 64
HISTORY_IDS = 64
NO_ID = 0xFFFFFFFF
STEP_BYTES = 256
MAX_STOPS = 56

_STATE = struct.Struct("<128I")
_STEP = struct.Struct("<fIfffIII56I")


def pack_step(sampling: Sampling, stop_ids: Collection[int] = ()) -> bytes:
    """A StepParams slot, STEP_BYTES long. Of ``stop_ids`` the ``known_stops`` are in it."""
    stops = known_stops(stop_ids)
    seed = sampling.seed
    return _STEP.pack(
        sampling.temperature,
        sampling.top_k,
        sampling.top_p,
        sampling.min_p,
        sampling.repeat_penalty,
        seed & 0xFFFFFFFF,
        seed >> 32,
        len(stops),
        *stops,
        *[NO_ID] * (MAX_STOPS - len(stops)),
    )


def known_stops(stop_ids: Collection[int]) -> list[int]:
    """Those of the end ids that the device is told, the lowest 56: what is in flight behind one writes nothing."""
    return sorted(stop_ids)[:MAX_STOPS]


def initial_state(position: int, token: int, last_ids: Sequence[int], mark: int = NO_ID) -> bytes:
    """The whole State buffer, STATE_BYTES long.

    ``position`` tokens are in the KV cache; ``last_ids`` are the newest of them, oldest first, so that the last
    stands at absolute position ``position - 1`` (only the last 64 matter). ``token`` is fed next. ``mark``: the token
    of a prompt chunk after which a recurrent state is kept beside (engine.cache), if any.
    """
    words = [0] * STATE_HISTORY + [NO_ID] * HISTORY_IDS
    words[STATE_POSITION] = position
    words[STATE_TOKEN], words[STATE_MARK] = token, mark
    recent = last_ids[-HISTORY_IDS:]
    start = position - len(recent)
    for place, token_id in enumerate(recent, start):
        words[STATE_HISTORY + place % HISTORY_IDS] = token_id
    return _STATE.pack(*words)
