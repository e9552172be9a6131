"""Files that are whole or absent, and errors that say which file they are about."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

logger = logging.getLogger(__name__)


class InUseError(OSError):
    """Another process holds a lock."""


def replace_text(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader, or a crash, sees the old content or the new one, never a part."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add `path` to an error of the operating system that names no file (a full disk shows while writing, not opening).

    Raises:
        OSError: of the same class, with the name.
    """
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(path)) from error


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock file `path` while the block runs; the system lets go of it when the process ends, however it does.

    Raises:
        InUseError: another process holds it; the message says which.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(descriptor, 32).decode("ascii", errors="replace").strip() or "unknown"
            raise InUseError(errno.EBUSY, f"in use by process {holder}", str(path)) from error
        except OSError as error:
            if error.errno not in (errno.ENOLCK, errno.ENOTSUP):
                raise
            logger.warning("%s: this file system knows no locks, so nothing keeps a second run out", path.parent)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(descriptor)
