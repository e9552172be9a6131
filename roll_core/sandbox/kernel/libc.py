"""System calls that Python's standard library does not offer (or not before 3.12), through ctypes."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from functools import cache

from roll_core.sandbox.kernel.syscalls import this_architecture

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET, CLONE_NEWTIME = 0x10000000, 0x20000000, 0x40000000, 0x00000080

MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 1 << 18
MNT_DETACH = 2
AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE = -100, 0x1000, 0x8000
MOUNT_ATTR_RDONLY, MOUNT_ATTR_NOSUID, MOUNT_ATTR_NODEV, MOUNT_ATTR_NOEXEC = 1, 2, 4, 8
_OPEN_TREE_CLONE, _MOVE_MOUNT_F_EMPTY_PATH = 1, 4

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC = 1, 1


@cache
def _libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(name: str, *args: int | bytes | ctypes.Array[ctypes.c_char] | None) -> int:
    """Make the system call `name`; integers go as 64-bit words, bytes as pointers.

    Raises:
        OSError: the kernel refused, with its errno and the name of the call.
    """
    words = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _check(int(_libc().syscall(ctypes.c_long(this_architecture().numbers[name]), *words)), name)


def unshare(flags: int) -> None:
    """Leave the namespaces that `flags` (CLONE_NEW*) name for fresh ones."""
    _check(_libc().unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, kind: int) -> None:
    """Enter the namespace behind `fd`; for pid namespaces the next child does."""
    _check(_libc().setns(fd, kind), "setns")


def prctl(option: int, argument: int = 0) -> None:
    """One of prctl's settings with a single argument."""
    word = ctypes.c_ulong
    _check(_libc().prctl(option, word(argument), word(0), word(0), word(0)), f"prctl({option})")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """`mount(2)`."""
    arguments = [None if text is None else text.encode() for text in (source, target, kind, options)]
    result = _libc().mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3])
    _check(result, f"mount {kind or ''} on {target}")


def detach_mount(target: str) -> None:
    """Unmount `target` and what lies below, lazily."""
    _check(_libc().umount2(target.encode(), MNT_DETACH), f"umount {target}")


def clone_tree(path: str, *, recursive: bool) -> int:
    """A descriptor of a detached copy of the mount tree at `path` (kernel 5.2)."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | (AT_RECURSIVE if recursive else 0)
    return syscall("open_tree", AT_FDCWD, path.encode(), flags)


def restrict_mount(fd: int, attributes: int, *, path: str = "", recursive: bool = True) -> None:
    """Add mount attributes (MOUNT_ATTR_*) to a mount or tree (kernel 5.12)."""
    flags = (0 if path else AT_EMPTY_PATH) | (AT_RECURSIVE if recursive else 0)
    record = struct.pack("QQQQ", attributes, 0, 0, 0)
    syscall("mount_setattr", fd, path.encode(), flags, record, len(record))


def attach_tree(fd: int, target: str) -> None:
    """Mount the detached tree behind `fd` at `target`."""
    syscall("move_mount", fd, b"", AT_FDCWD, target.encode(), _MOVE_MOUNT_F_EMPTY_PATH)


def pivot_here() -> None:
    """Make the current folder the root and leave no way back to the old one."""
    syscall("pivot_root", b".", b".")
    detach_mount(".")
    os.chdir("/")


def close_from(fd: int) -> None:
    """Close every descriptor from `fd` on (kernel 5.9)."""
    syscall("close_range", fd, 0xFFFFFFFF, 0)


def drop_capabilities(*, bounding_set: bool) -> None:
    """Give up every capability for good.

    Args:
        bounding_set: also empty the bounding set, which matters only across `execve`.
    """
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    if bounding_set:
        for capability in range(64):
            try:
                prctl(PR_CAPBSET_DROP, capability)
            except OSError as error:
                if error.errno == errno.EINVAL:  # past the last capability of this kernel
                    break
                if error.errno != errno.EPERM:  # not privileged: nothing to lose either, given NO_NEW_PRIVS
                    raise
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    syscall("capset", header, b"\0" * 24)


def install_filter(program: bytes) -> None:
    """Put a seccomp filter over all threads of this process; needs NO_NEW_PRIVS.

    Args:
        program: packed `struct sock_filter` records.
    """
    code = ctypes.create_string_buffer(program, len(program))
    record = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(code)))
    syscall("seccomp", _SECCOMP_SET_MODE_FILTER, _SECCOMP_FILTER_FLAG_TSYNC, record)
