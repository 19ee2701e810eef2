"""Where a conversation can go back to without being fed again.

A KV cache goes back to any of its tokens. A recurrent state goes only on, so copies of it are kept where a later prompt
is likely to part from this one. While the KV cache holds their tokens they can be gone back to.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import closing
from typing import NamedTuple

from engine.cache import Cache
from engine.errors import EngineError
from engine.models.config import Geometry
from engine.vulkan.commands import ONE_TIME_SUBMIT, CommandBuffer
from engine.vulkan.device import Device
from engine.vulkan.memory import Memory, Slice

PROMPTS = 8  # whose state is kept
SLOTS = PROMPTS + 1
# A prompt ends with the tokens that begin the reply. A later prompt may have others in their place, as it has where a
# template leaves old thoughts out; so the state is kept at the end of the turn before, if that is no further back.
_OPENING_TOKENS = 32


def snapshot_bytes(g: Geometry) -> int:
    """Device memory that all snapshots of a conversation may take."""
    return SLOTS * (g.recurrent_bytes + 4 * g.vocab) if g.recurrent_bytes else 0


class SnapshotStore:
    """Copies of the recurrent state, and of the logits that belong to it, in numbered slots of device memory."""

    def __init__(self, device: Device, memory: Memory, cache: Cache, logits: Slice) -> None:
        self._device, self._memory = device, memory
        self._state, self._marked = (
            [logits, *(item for layer in states for item in layer)] for states in (cache.recurrent, cache.marked)
        )
        self._slots: dict[int, Slice] = {}
        self.slot_bytes = sum(item.size for item in self._state)

    @property
    def allocated_bytes(self) -> int:
        """Device memory of the slots in use so far."""
        return len(self._slots) * self.slot_bytes

    def save(self, slot: int, marked: bool) -> None:
        """Copy the state, or the marked one, to a slot. Nothing in flight.

        A slot is allocated at first use: EngineError where memory is out.
        """
        if slot not in self._slots:
            self._slots[slot] = self._memory.allocate(self.slot_bytes)
        self._copy(slot, self._marked if marked else self._state, restore=False)

    def restore(self, slot: int) -> float:
        """Put back what ``save`` copied; returns the device time, ns, at which it was there. Nothing in flight."""
        return self._copy(slot, self._state, restore=True)

    def _copy(self, slot: int, parts: list[Slice], restore: bool) -> float:
        saved, start = self._slots[slot], 0
        with closing(CommandBuffer(self._device)) as commands:
            commands.begin(ONE_TIME_SUBMIT)
            for item in parts:
                if restore:
                    commands.copy(saved, item, [(start, 0, item.size)])
                else:
                    commands.copy(item, saved, [(0, start, item.size)])
                start += item.size
            commands.end()
            commands.run_us()
            return commands.ticks_ns()[1]


class _Kept(NamedTuple):
    tokens: int
    slot: int
    prompt: bool  # of a prompt's end
    complete: bool  # the logits are the prompt's


class Return(NamedTuple):
    """How many tokens remain of a conversation, and where a state had to be put back the device time, ns, of that."""

    tokens: int
    end_ns: float | None = None


class Snapshots:
    """One conversation's snapshots; ``store`` None: its model has no recurrent state.

    Kept are the ends of the newest prompts, and in the slots that they leave the ends of turns and replies before them.
    """

    def __init__(self, store: SnapshotStore | None, stop_ids: Set[int]) -> None:
        self._store, self._stop_ids = store, stop_ids
        self._kept: list[_Kept] = []  # oldest, and so shortest, first

    @property
    def tokens_kept(self) -> list[int]:
        """How many tokens the snapshots are of, ascending."""
        return [item.tokens for item in self._kept]

    def go_back(self, held: Sequence[int], ids: Sequence[int], replied: bool) -> Return:
        """Make the device hold as much of the prompt ``ids`` as there is of it, where it now holds ``held``.

        ``replied``: those end with a reply. Where all of the prompt remains, its logits are there too.
        """
        common = _common_prefix(held, ids)
        if self._store is None:
            return Return(min(common, len(ids) - 1))
        if common == len(held) < len(ids):
            self._forget_beyond(common)
            if replied and common not in self.tokens_kept:  # the turn that follows may be edited
                self._keep(common, prompt=False, complete=False, marked=False)
            return Return(common)
        usable = [item for item in self._kept if item.tokens <= common]
        usable = [item for item in usable if item.tokens < len(ids) or item.complete]
        if not usable:
            self._forget_beyond(0)
            return Return(0)
        self._forget_beyond(usable[-1].tokens)
        return Return(usable[-1].tokens, self._store.restore(usable[-1].slot))

    def place(self, ids: Sequence[int], held_tokens: int) -> int:
        """After how many of the prompt's tokens its end is kept, of which ``held_tokens`` are not fed; 0: nowhere."""
        least = len(ids) - _OPENING_TOKENS
        if self._store is None or any(item.tokens == held_tokens >= least for item in self._kept if item.prompt):
            return 0
        return self._turn_end(ids, max(held_tokens, least), len(ids)) or len(ids)

    def mark(self, ids: Sequence[int], position: int, end: int, place: int) -> int:
        """After how many tokens to mark the state in the chunk from ``position`` to ``end``; 0: nowhere."""
        if self._store is None or position < place <= end:
            return place
        return self._turn_end(ids, position, end)

    def keep(self, tokens: int, ids: Sequence[int], place: int) -> None:
        """Keep the marked state, after ``tokens`` of the prompt's tokens."""
        self._keep(tokens, tokens == place, tokens == len(ids), marked=True)

    def _turn_end(self, ids: Sequence[int], start: int, end: int) -> int:
        """Behind the last end-of-turn id from ``start`` to ``end``; 0 where there is none."""
        return next((after for after in range(end, start, -1) if ids[after - 1] in self._stop_ids), 0)

    def _keep(self, tokens: int, prompt: bool, complete: bool, marked: bool) -> None:
        used = {item.slot for item in self._kept}
        slot = next((number for number in range(SLOTS) if number not in used), None)
        prompts = [item for item in self._kept if item.prompt]
        if slot is None or (prompt and len(prompts) == PROMPTS) or not self._save(slot, marked):
            others = [item for item in self._kept if not item.prompt]
            replaced = prompts[0] if len(prompts) == PROMPTS and prompt else next(iter([*others, *prompts]), None)
            if replaced is None or not (prompt or others):
                return
            self._kept.remove(replaced)
            slot = replaced.slot
            self._save(slot, marked)
        self._kept.append(_Kept(tokens, slot, prompt, complete))

    def _forget_beyond(self, tokens: int) -> None:
        """The KV cache is about to be written over from ``tokens`` on."""
        self._kept = [item for item in self._kept if item.tokens <= tokens]

    def _save(self, slot: int, marked: bool) -> bool:
        """False where memory is out: a conversation goes on without, only slower after an edit."""
        assert self._store is not None
        try:
            self._store.save(slot, marked)
        except EngineError:
            return False
        return True


def _common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return count
