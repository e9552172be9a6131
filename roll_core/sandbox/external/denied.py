"""System calls that no program of an external backend may make, whatever its language."""

from __future__ import annotations

import errno

from roll_core.sandbox.kernel.bpf import (
    IF_ANY_BIT,
    IF_AT_LEAST,
    IF_EQUAL,
    assemble,
    branch,
    decide_by_number,
    give,
    load,
)
from roll_core.sandbox.kernel.filter import ALLOW, KILL, NEW_NAMESPACE, error
from roll_core.sandbox.kernel.syscalls import this_architecture

_DENIED_TEXT = """
    add_key bpf delete_module fanotify_init finit_module fsconfig fsmount fsopen fspick init_module io_uring_enter
    io_uring_register io_uring_setup kcmp kexec_file_load kexec_load keyctl memfd_create memfd_secret mount
    mount_setattr move_mount mq_open msgget name_to_handle_at open_by_handle_at open_tree perf_event_open pidfd_getfd
    pivot_root process_madvise process_vm_readv process_vm_writev ptrace quotactl request_key semget setns shmget
    swapoff swapon syslog umount2 unshare userfaultfd
"""
DENIED = frozenset(_DENIED_TEXT.split())
"""What reaches deep into the kernel, into other processes, or takes memory that no limit counts."""

_NUMBER_AT, _ARCHITECTURE_AT, _FLAGS_AT = 0, 4, 16
_X32_BIT = 0x40000000


def denied_numbers() -> list[int]:
    """Numbers of `DENIED` on this machine."""
    numbers = this_architecture().numbers
    return sorted(numbers[name] for name in DENIED if name in numbers)


def as_bpf() -> bytes:
    """The filter as `bwrap --seccomp` reads it."""
    architecture = this_architecture()
    numbers = architecture.numbers
    verdicts: list[int | None] = [ALLOW] * (max(numbers.values()) + 1)
    for number in denied_numbers():
        verdicts[number] = error(errno.EPERM)
    verdicts[numbers["clone3"]] = error(errno.ENOSYS)  # its flags cannot be read; callers fall back to clone
    verdicts[numbers["clone"]] = None
    clone = [load(_FLAGS_AT), branch(IF_ANY_BIT, NEW_NAMESPACE, 0, 1), give(error(errno.EPERM)), give(ALLOW)]
    program = [
        load(_ARCHITECTURE_AT),
        branch(IF_EQUAL, architecture.audit, 1, 0),
        give(KILL),
        load(_NUMBER_AT),
        branch(IF_AT_LEAST, _X32_BIT, 0, 1),
        give(KILL),
        branch(IF_EQUAL, numbers["clone"], 0, len(clone)),
        *clone,
        *decide_by_number(verdicts, error(errno.ENOSYS)),
    ]
    return assemble(program).code


def as_kafel() -> str:
    """The same as a policy of `nsjail --seccomp_string`."""
    denied = ", ".join(f"SYSCALL[{number}]" for number in denied_numbers())
    return (
        f"POLICY roll {{ ERRNO({errno.EPERM}) {{ {denied}, clone {{ (clone_flags & {NEW_NAMESPACE:#x}) != 0 }} }}, "
        f"ERRNO({errno.ENOSYS}) {{ SYSCALL[{this_architecture().numbers['clone3']}] }} }} USE roll DEFAULT ALLOW"
    )
