"""Files in memory through which a run gets its input and gives its output: no pipes, so nothing can block on them."""

from __future__ import annotations

import fcntl
import os

_SPARE = 4 << 20
"""Room beyond the limit of an output. The kernel refuses what would pass the end of the file one large page (at most 2
MiB) at a time, so a position between the limit and the end tells an output that was cut from one that fits exactly."""
_F_ADD_SEALS = 1033
_F_SEAL_SEAL, _F_SEAL_SHRINK, _F_SEAL_GROW, _F_SEAL_WRITE = 1, 2, 4, 8


def output_size(capacity: int) -> int:
    """Bytes that an output file which may hold `capacity` can grow to."""
    return capacity + _SPARE


class MemoryFile:
    """An anonymous file, closed when nobody holds it any more."""

    def __init__(self, name: str) -> None:
        self._fd = -1  # `close` needs it when there are no descriptors left
        self._fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)

    @classmethod
    def of_input(cls, name: str, content: bytes) -> MemoryFile:
        """A file with `content` that nobody can change."""
        file = cls(name)
        view = memoryview(content)
        while view:
            view = view[os.write(file.fd, view) :]
        os.lseek(file.fd, 0, os.SEEK_SET)
        fcntl.fcntl(file.fd, _F_ADD_SEALS, _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_WRITE)
        return file

    @classmethod
    def for_output(cls, name: str, capacity: int) -> MemoryFile:
        """A file that takes `capacity` bytes and a little more, and then refuses: the kernel counts, nobody polls."""
        file = cls(name)
        os.ftruncate(file.fd, output_size(capacity))
        fcntl.fcntl(file.fd, _F_ADD_SEALS, _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW)
        return file

    @property
    def fd(self) -> int:
        """The descriptor."""
        return self._fd

    def written(self) -> int:
        """How many bytes were written to an output: where its writer's position is, which all its holders share."""
        return os.lseek(self._fd, 0, os.SEEK_CUR)

    def read(self, limit: int) -> bytes:
        """What was written, at most `limit` bytes of it."""
        return os.pread(self._fd, min(self.written(), limit), 0)

    def close(self) -> None:
        """Free it; a second time does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()
