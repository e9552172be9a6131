"""The standard streams of a program in the jail, as CPython makes them for a script on Linux."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from os import _exit as leave_now
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

FLUSH_FAILED = 120
"""CPython's exit status where the standard streams cannot be flushed at the end."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The streams made here; a program may bind others to `sys.stdout`."""

    stdin: io.TextIOWrapper
    stdout: io.TextIOWrapper
    stderr: io.TextIOWrapper
    written: Written
    """What was written to `stdout` since the last look."""

    def leave(self, status: int) -> NoReturn:
        """Flush what is open and end the process at once, without the interpreter's own clean-up."""
        leave_now(self.flushed(status))

    def flushed(self, status: int) -> int:
        """Flush; the exit status, which becomes `FLUSH_FAILED` where a good one cannot be kept."""
        for stream in (sys.stdout, self.stdout, sys.stderr, self.stderr):
            try:
                if stream is not None and not stream.closed:
                    stream.flush()
            except BaseException:  # noqa: BLE001  the program may have bound anything to sys.stdout
                status = status or FLUSH_FAILED
        return status


class Written(io.FileIO):
    """Standard output that, where it is asked to, also keeps what passes through for the other jail."""

    keep: int = 0
    """Bytes to keep at most; 0 keeps nothing."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._kept = bytearray()

    def write(self, data: ReadableBuffer, /) -> int:
        """Write to the descriptor and keep a copy."""
        if self.keep:
            self._kept += bytes(data)[: max(self.keep - len(self._kept), 0)]
        return super().write(data)

    def take(self) -> str:
        """What was kept since the last call."""
        text = self._kept.decode("utf-8", "replace")
        self._kept.clear()
        return text


def install_streams() -> Streams:
    """Bind the standard streams to descriptors 0, 1 and 2, in UTF-8 and without translation of line ends.

    Undecodable bytes go through unchanged (surrogateescape), as CPython does in the POSIX locale.
    """
    source = io.FileIO(0, "r", closefd=False)
    written = Written(1)
    stdin = io.TextIOWrapper(io.BufferedReader(source), "utf-8", "surrogateescape", "\n")
    stdout = io.TextIOWrapper(io.BufferedWriter(written), "utf-8", "surrogateescape", "\n")
    stderr = io.TextIOWrapper(
        io.BufferedWriter(io.FileIO(2, "w", closefd=False)), "utf-8", "backslashreplace", "\n", line_buffering=True
    )
    sys.stdin = sys.__stdin__ = stdin  # type: ignore[misc]  # a forked child has to replace the zygote's streams
    sys.stdout = sys.__stdout__ = stdout  # type: ignore[misc]  # as above
    sys.stderr = sys.__stderr__ = stderr  # type: ignore[misc]  # as above
    return Streams(stdin, stdout, stderr, written)
