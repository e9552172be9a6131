"""The seccomp filter of a jail: default-deny, arguments checked where a call is safe with some of them only.

Pointers cannot be followed by a filter; a call that hides what matters behind one (`clone3`) is refused as a whole.
"""

from __future__ import annotations

import errno

from roll_core.sandbox.kernel import libc, policy
from roll_core.sandbox.kernel.bpf import (
    IF_ANY_BIT,
    IF_AT_LEAST,
    IF_EQUAL,
    Instruction,
    Program,
    assemble,
    branch,
    decide_by_number,
    give,
    load,
)
from roll_core.sandbox.kernel.syscalls import Architecture
from roll_core.sandbox.types import Level

ALLOW, KILL = 0x7FFF0000, 0x80000000
"""SECCOMP_RET_ALLOW and SECCOMP_RET_KILL_PROCESS."""
_NUMBER_AT, _ARCH_AT, _ARGUMENTS_AT = 0, 4, 16
_X32_BIT = 0x40000000

NEW_NAMESPACE = (
    libc.CLONE_NEWNS
    | libc.CLONE_NEWCGROUP
    | libc.CLONE_NEWUTS
    | libc.CLONE_NEWIPC
    | libc.CLONE_NEWUSER
    | libc.CLONE_NEWPID
    | libc.CLONE_NEWNET
    | libc.CLONE_NEWTIME
)
CLONE_THREAD = 0x00010000
_AF_UNIX, _SOCKET_TYPE_BITS, _SOCK_STREAM, _SOCK_SEQPACKET = 1, 0xF, 1, 5
_SOL_SOCKET = 1
_SOCKET_OPTIONS = (2, 7, 8, 9, 20, 21, 66, 67)
"""SO_REUSEADDR, SO_SNDBUF, SO_RCVBUF, SO_KEEPALIVE and the send and receive timeouts; no filters, no forced buffers."""
_IOCTLS = (0x5450, 0x5451, 0x5421, 0x5401, 0x5413, 0x541B)
"""FIONCLEX, FIOCLEX, FIONBIO, TCGETS (isatty), TIOCGWINSZ, FIONREAD. Not TIOCSTI."""
_PRCTLS = (15, 16, 0x53564D41)
"""PR_SET_NAME, PR_GET_NAME, PR_SET_VMA (malloc names its arenas)."""
_FCNTLS = (0, 1, 2, 3, 4, 5, 6, 7, 36, 37, 38, 1030, 1032, 1034)
"""Duplicates, flags, locks, F_GETPIPE_SZ, F_GET_SEALS.

Not F_SETOWN, F_SETSIG, F_SETOWN_EX: with O_ASYNC they make the kernel send any signal to any process of the same user.
Not leases, notifications, larger pipes or seals.
"""
_MAP_HUGETLB = 0x40000
_RLIMIT_STACK, _RLIMIT_CORE = 3, 4
"""New limits for these are taken without effect. The stack is as large as the memory limit lets it be, whatever honest
programs ask for, even "no limit". Core files stay at the 1 that is set: at 0 the kernel would start the host's handler
of core files."""
_MAX_CLOCKS, _THREAD_CLOCK_BIT = 16, 4
"""Ids from MAX_CLOCKS on are CPU clocks of processes, of threads (with CPUCLOCK_PERTHREAD_MASK; the kernel shows only
those of the process itself), or clocks of devices."""
_OWN_CPU_CLOCKS = (0xFFFFFFF8, 0xFFFFFFF9, 0xFFFFFFFA)
"""CPU clocks of process 0, which is the caller: profiled, virtual, scheduled time."""


def error(number: int) -> int:
    """The verdict that makes a call fail with `number` (SECCOMP_RET_ERRNO)."""
    return 0x00050000 | number


def build_filter(architecture: Architecture, level: Level, *, allow_processes: bool = False) -> Program:
    """The filter of the jails of one zygote.

    Args:
        architecture: whose system calls.
        level: `ns` adds calls that change metadata of files, `seccomp` takes every call away that takes a path.
        allow_processes: let the program fork and execute; only in a pid namespace of its own.
    """
    numbers = architecture.numbers
    program = [
        load(_ARCH_AT),
        branch(IF_EQUAL, architecture.audit, 1, 0),
        give(KILL),
        load(_NUMBER_AT),
        branch(IF_AT_LEAST, _X32_BIT, 0, 1),
        give(KILL),
    ]
    by_name = _verdicts(level, allow_processes)
    checked = {name: body for name, body in _argument_checks(level, allow_processes).items() if name in numbers}
    for name, body in checked.items():
        program += [branch(IF_EQUAL, numbers[name], 0, len(body)), *body]
    names = {number: name for name, number in numbers.items()}
    by_number: list[int | None] = []
    for number in range(max(names) + 1):
        name = names.get(number, "")
        refusal = error(errno.EPERM if number < policy.FIRST_RECENT else errno.ENOSYS)
        by_number.append(None if name in checked else by_name.get(name, refusal))
    return assemble([*program, *decide_by_number(by_number, error(errno.ENOSYS))])


def _verdicts(level: Level, allow_processes: bool) -> dict[str, int]:
    """Verdicts on calls that are not simply refused, where the name alone decides."""
    verdicts = dict.fromkeys(policy.COMPUTING, ALLOW)
    verdicts |= dict.fromkeys(policy.UNSUPPORTED, error(errno.EOPNOTSUPP))
    verdicts |= dict.fromkeys(policy.PATHS, error(errno.EACCES) if level == "seccomp" else ALLOW)
    if level == "ns":
        verdicts |= dict.fromkeys(policy.METADATA, ALLOW)
    if allow_processes:
        verdicts |= dict.fromkeys(policy.PROCESSES, ALLOW)
    return verdicts


def _argument_checks(level: Level, allow_processes: bool) -> dict[str, list[Instruction]]:
    """What decides by arguments, by the name of the call; every body ends in a verdict."""
    denied = error(errno.EPERM)
    checks = {
        "clone": _clone(allow_processes),
        "clone3": [give(error(errno.ENOSYS))],
        "mmap": [load(_low(3)), branch(IF_ANY_BIT, _MAP_HUGETLB, 0, 1), give(denied), give(ALLOW)],
        "ioctl": [load(_low(1)), *_one_of(_IOCTLS, error(errno.ENOTTY))],
        "fcntl": [load(_low(1)), *_one_of(_FCNTLS, denied)],
        "prctl": [load(_low(0)), *_one_of(_PRCTLS, denied)],
        "prlimit64": _prlimit(denied),
        "setrlimit": [load(_low(0)), *_is_kept(), give(ALLOW), give(error(0))],
        # a pair cannot be connected elsewhere; but a datagram may name its receiver, one of the host's sockets say
        "socketpair": [
            load(_low(0)),
            branch(IF_EQUAL, _AF_UNIX, 1, 0),
            give(denied),
            *_socket_type(denied),
        ],
        "sendto": [*_must_be_zero(4, denied), give(ALLOW)],
        "setsockopt": [
            load(_low(1)),
            branch(IF_EQUAL, _SOL_SOCKET, 1, 0),
            give(denied),
            load(_low(2)),
            *_one_of(_SOCKET_OPTIONS, denied),
        ],
        "setpriority": [*_must_be_zero(0, denied), *_must_be_zero(1, denied), give(ALLOW)],
    }
    if level != "ns":  # without a pid namespace of its own all processes of the host have numbers here
        checks |= _about_itself(denied)
    if not allow_processes:
        checks["kill"] = checks["tgkill"] = [load(_low(0)), *_one_of((None,), denied)]
    if level == "seccomp":  # glibc 2.33 and later: fstat(fd) is newfstatat(fd, "", AT_EMPTY_PATH)
        no_path = [branch(IF_ANY_BIT, libc.AT_EMPTY_PATH, 1, 0), give(error(errno.EACCES)), give(ALLOW)]
        checks["newfstatat"] = [load(_low(3)), *no_path]
    return checks


def _low(argument: int) -> int:
    """Where the low half of an argument lies (little-endian)."""
    return _ARGUMENTS_AT + 8 * argument


def _clone(allow_processes: bool) -> list[Instruction]:
    denied = give(error(errno.EPERM))
    body = [load(_low(0)), branch(IF_ANY_BIT, NEW_NAMESPACE, 0, 1), denied]
    if not allow_processes:
        body += [branch(IF_ANY_BIT, CLONE_THREAD, 1, 0), denied]
    return [*body, give(ALLOW)]


def _prlimit(denied: int) -> list[Instruction]:
    """Only for the process itself; some new limits are taken without effect."""
    is_kept = [load(_low(1)), *_is_kept(), give(ALLOW)]
    is_new = [*_must_be_zero(2, error(0)), give(ALLOW)]
    own = [branch(IF_EQUAL, 0, 2, 0), branch(IF_EQUAL, None, 1, 0), give(denied)]
    return [load(_low(0)), *own, *is_kept, *is_new]


def _is_kept() -> list[Instruction]:
    """Skip one instruction when the limit in the accumulator stays as it is set."""
    return [branch(IF_EQUAL, _RLIMIT_STACK, 2, 0), branch(IF_EQUAL, _RLIMIT_CORE, 1, 0)]


def _about_itself(denied: int) -> dict[str, list[Instruction]]:
    """Questions about processes, allowed about the process itself: the answers would tell which others there are."""
    own = (0, None)
    checks = {name: [load(_low(0)), *_one_of(own, denied)] for name in policy.QUESTIONS}
    # the C library asks for the processors of a thread, whose number no filter knows, and passes over this answer
    checks["sched_getaffinity"] = [load(_low(0)), *_one_of(own, error(errno.ENOSYS))]
    checks["getpriority"] = [load(_low(1)), *_one_of(own, denied)]
    clock = [
        load(_low(0)),
        branch(IF_AT_LEAST, _MAX_CLOCKS, 0, 2 + len(_OWN_CPU_CLOCKS)),
        branch(IF_ANY_BIT, _THREAD_CLOCK_BIT, 1 + len(_OWN_CPU_CLOCKS), 0),
        *_one_of(_OWN_CPU_CLOCKS, denied),
    ]
    checks |= dict.fromkeys(policy.CLOCKS, clock)
    return checks


def _one_of(values: tuple[int | None, ...], otherwise: int) -> list[Instruction]:
    """Allow when the accumulator is one of `values` (None: the process's own pid)."""
    tests = [branch(IF_EQUAL, value, len(values) - i, 0) for i, value in enumerate(values)]
    return [*tests, give(otherwise), give(ALLOW)]


def _socket_type(denied: int) -> list[Instruction]:
    mask = Instruction(0x54, 0, 0, _SOCKET_TYPE_BITS)  # BPF_ALU | BPF_AND | BPF_K
    return [load(_low(1)), mask, *_one_of((_SOCK_STREAM, _SOCK_SEQPACKET), denied)]


def _must_be_zero(argument: int, denied: int) -> list[Instruction]:
    """Go on only when both halves of the argument are 0."""
    low = [load(_low(argument)), branch(IF_EQUAL, 0, 1, 0), give(denied)]
    high = [load(_low(argument) + 4), branch(IF_EQUAL, 0, 1, 0), give(denied)]
    return [*low, *high]
