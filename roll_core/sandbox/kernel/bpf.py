"""An assembler for classic BPF, as much of it as a seccomp filter needs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

LOAD, RETURN, JUMP = 0x20, 0x06, 0x05
IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT = 0x15, 0x35, 0x45
_FARTHEST = 255
"""How many instructions a conditional jump can skip."""


class Instruction(NamedTuple):
    """One `struct sock_filter`."""

    code: int
    if_true: int
    if_false: int
    k: int | None
    """The operand; None stands for the pid of the process that installs the filter."""


Block = Sequence[Instruction]


def load(offset: int) -> Instruction:
    """Load the 32-bit word at `offset` of `struct seccomp_data`."""
    return Instruction(LOAD, 0, 0, offset)


def give(verdict: int) -> Instruction:
    """End with `verdict`."""
    return Instruction(RETURN, 0, 0, verdict)


def branch(code: int, k: int | None, if_true: int, if_false: int) -> Instruction:
    """Skip `if_true` instructions when the comparison holds, else `if_false`."""
    return Instruction(code, if_true, if_false, k)


def decide_by_number(verdicts: Sequence[int | None], beyond: int) -> list[Instruction]:
    """A binary search over the number in the accumulator.

    Args:
        verdicts: verdict by number; None where it does not matter, as the number does not get here.
        beyond: verdict of all larger numbers.
    """
    runs: list[tuple[int, int]] = []
    for number, verdict in enumerate([*verdicts, beyond]):
        if verdict is not None and (not runs or runs[-1][1] != verdict):
            runs.append((number, verdict))
    return _search(runs)


def _search(runs: Sequence[tuple[int, int]]) -> list[Instruction]:
    if len(runs) == 1:
        return [give(runs[0][1])]
    middle = len(runs) // 2
    below, above = _search(runs[:middle]), _search(runs[middle:])
    if len(below) <= _FARTHEST:
        return [branch(IF_AT_LEAST, runs[middle][0], len(below), 0), *below, *above]
    far_jump = Instruction(JUMP, 0, 0, len(below))
    return [branch(IF_AT_LEAST, runs[middle][0], 0, 1), far_jump, *below, *above]


@dataclass(frozen=True, slots=True)
class Program:
    """An assembled filter, but for the pid of the process it is meant for."""

    code: bytes
    pid_at: tuple[int, ...]
    """Byte offsets where that pid goes."""

    def for_pid(self, pid: int) -> bytes:
        """The filter as the process `pid` installs it."""
        code = bytearray(self.code)
        for offset in self.pid_at:
            struct.pack_into("I", code, offset, pid)
        return bytes(code)


def assemble(instructions: Block) -> Program:
    """Pack instructions into `struct sock_filter` records."""
    record = struct.Struct("HBBI")
    code = b"".join(record.pack(i.code, i.if_true, i.if_false, i.k or 0) for i in instructions)
    pids = tuple(n * record.size + 4 for n, i in enumerate(instructions) if i.k is None)
    return Program(code, pids)
