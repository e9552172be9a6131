"""Landlock: an allow list of paths that the kernel enforces on a process without any privilege (kernel 5.13)."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from roll_core.sandbox.kernel.libc import syscall

_CREATE_RULESET_VERSION, _RULE_PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1, 2, 4, 8
_ALL_OF_ABI_1, _REFER, _TRUNCATE, _IOCTL_DEV = (1 << 13) - 1, 1 << 13, 1 << 14, 1 << 15
_ON_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_AND_CONNECT_TCP, _ABSTRACT_UNIX_AND_SIGNALS = 3, 3


def landlock_abi() -> int:
    """The version of Landlock that the kernel speaks; 0 where there is none."""
    try:
        return syscall("landlock_create_ruleset", None, 0, _CREATE_RULESET_VERSION)
    except OSError:  # ENOSYS, EOPNOTSUPP, or EPERM from a container's own filter: all mean "not here"
        return 0


def make_ruleset(readable: Iterable[str], writable: Iterable[str]) -> int:
    """A ruleset that handles everything this kernel can and allows reading, or all but executing, beneath paths.

    Returns:
        Its descriptor, for `restrict_self`.

    Raises:
        OSError: no Landlock here, or a path that is not there.
    """
    abi = landlock_abi()
    handled = _ALL_OF_ABI_1
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        handled |= right if abi >= since else 0
    ruleset = _create(abi, handled)
    for paths, rights in ((readable, _EXECUTE | _READ_FILE | _READ_DIR), (writable, handled & ~_EXECUTE)):
        for path in paths:
            _allow(ruleset, path, rights & handled)
    return ruleset


def _create(abi: int, handled: int) -> int:
    net = struct.pack("Q", _BIND_AND_CONNECT_TCP) if abi >= 4 else b""
    scopes = struct.pack("Q", _ABSTRACT_UNIX_AND_SIGNALS) if abi >= 6 else b""
    for more in (net + scopes, net, b""):  # some distributions' kernels claim an ABI of which they lack a part
        attributes = struct.pack("Q", handled) + more
        try:
            return syscall("landlock_create_ruleset", attributes, len(attributes), 0)
        except OSError:
            if not more:
                raise
    raise AssertionError("the loop ends by returning or raising")


def _allow(ruleset: int, path: str, rights: int) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights &= -1 if os.path.isdir(path) else _ON_FILES
        syscall("landlock_add_rule", ruleset, _RULE_PATH_BENEATH, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def restrict_self(ruleset: int) -> None:
    """Confine this process and its descendants for good; needs NO_NEW_PRIVS."""
    syscall("landlock_restrict_self", ruleset, 0)
