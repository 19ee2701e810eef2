"""What SPIR-V says of each load and store through an address, and of barriers."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

LOAD, STORE = 61, 62
ALIGNED, AVAILABLE, VISIBLE, NON_PRIVATE = 0x2, 0x8, 0x10, 0x20  # memory operands; all behind addresses are aligned
DEVICE, WORKGROUP, SUBGROUP = 1, 2, 3  # scopes
ACQUIRE_RELEASE, BUFFER, SHARED, MADE_AVAILABLE, MADE_VISIBLE = 0x8, 0x40, 0x100, 0x2000, 0x4000  # memory semantics
_NAME, _POINTER, _CONSTANT, _CONTROL_BARRIER = 5, 32, 43, 224
_CHAINS = (65, 66)  # OpAccessChain, OpInBoundsAccessChain


class Access(NamedTuple):
    """A load or store (``opcode``) of a buffer, whose type is ``block``; ``scope`` is None where none is said."""

    opcode: int
    block: str
    operands: int
    scope: int | None

    @property
    def reaches_device(self) -> bool:
        """Whether it passes the caches that not all of the device shares."""
        wanted = NON_PRIVATE | (VISIBLE if self.opcode == LOAD else AVAILABLE)
        return self.operands & wanted == wanted and self.scope == DEVICE


class ControlBarrier(NamedTuple):
    """Who meets, and who must see what memory by then."""

    execution_scope: int
    memory_scope: int
    semantics: int


def control_barriers(code: bytes) -> Iterator[ControlBarrier]:
    """All barriers at which invocations meet, in order."""
    constants: dict[int, int] = {}
    for opcode, rest in _instructions(code):
        if opcode == _CONSTANT:
            constants[rest[1]] = rest[2]
        elif opcode == _CONTROL_BARRIER:
            yield ControlBarrier(*(constants[operand] for operand in rest))


def accesses(code: bytes) -> Iterator[Access]:
    """All loads and stores through addresses, in order."""
    names: dict[int, str] = {}
    constants: dict[int, int] = {}
    pointed: dict[int, int] = {}  # a pointer type: what it points to
    types: dict[int, int] = {}  # of results
    bases: dict[int, int] = {}  # of access chains
    for opcode, rest in _instructions(code):
        if opcode == _NAME:
            names[rest[0]] = struct.pack(f"<{len(rest) - 1}I", *rest[1:]).split(b"\0")[0].decode()
        elif opcode == _POINTER:
            pointed[rest[0]] = rest[2]
        elif opcode == _CONSTANT:
            constants[rest[1]] = rest[2]
        elif opcode not in (LOAD, STORE) and len(rest) > 2:
            types[rest[1]] = rest[0]
            if opcode in _CHAINS:
                bases[rest[1]] = rest[2]
        if opcode == LOAD:
            types[rest[1]] = rest[0]
        if opcode not in (LOAD, STORE):
            continue
        pointer, operands = (rest[2], rest[3:]) if opcode == LOAD else (rest[0], rest[2:])
        if not operands or not operands[0] & ALIGNED:
            continue
        while pointer in bases:
            pointer = bases[pointer]
        scoped = operands[0] & (AVAILABLE | VISIBLE)
        yield Access(opcode, names[pointed[types[pointer]]], operands[0], constants[operands[2]] if scoped else None)


def _instructions(code: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Opcodes, each with the words behind it."""
    words = struct.unpack(f"<{len(code) // 4}I", code)
    place = 5
    while place < len(words):
        length, opcode = words[place] >> 16, words[place] & 0xFFFF
        yield opcode, words[place + 1 : place + length]
        place += length
