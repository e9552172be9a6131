"""Resource limits that the kernel enforces on each process of a run."""

from __future__ import annotations

import math
import resource

from roll_core.sandbox.wire import RunRequest

_MIB = 1 << 20
_STACK_MB = 64
"""Stack of the main thread beyond the memory limit, which bounds it: a program has all the stack that it could ask for.
Where programs execute others this alone, as each thread of those reserves as much."""
_UNTOUCHED_MB = 512
"""Address space beyond the memory limit, for what is reserved and never touched (stacks of threads, arenas): a thread
with the 512 MiB that deep recursion is often given fits."""
_DESCRIPTORS = 64


def set_limits(request: RunRequest, *, own_address_space: int, other_threads: int, may_execute: bool) -> None:
    """Limit this process, soft and hard.

    Args:
        request: the limits of the run.
        own_address_space: bytes that the interpreter and the preloaded modules take.
        other_threads: threads of other processes that count against the same user.
        may_execute: whether the program may execute others.
    """
    cpu = math.ceil(request.cpu_s) + 1  # a backup: the zygote's clock is finer and decides
    memory = own_address_space + (request.memory_mb + _STACK_MB + _UNTOUCHED_MB) * _MIB
    stack = (_STACK_MB + (0 if may_execute else request.memory_mb)) * _MIB
    threads = request.processes + other_threads
    limits: dict[int, tuple[int, int]] = {
        resource.RLIMIT_CPU: (cpu, cpu + 1),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_STACK: (stack, stack),
        resource.RLIMIT_NPROC: (threads, threads),
        resource.RLIMIT_FSIZE: (request.file_bytes, request.file_bytes),
        resource.RLIMIT_NOFILE: (_DESCRIPTORS, _DESCRIPTORS),
        resource.RLIMIT_CORE: (1, 1),  # 0 would let the host's handler of core files start (fs/coredump.c)
        resource.RLIMIT_MSGQUEUE: (0, 0),
        resource.RLIMIT_MEMLOCK: (64 << 10, 64 << 10),
        resource.RLIMIT_SIGPENDING: (256, 256),
    }
    for which, (soft, hard) in limits.items():
        _lower(which, soft, hard)


def _lower(which: int, soft: int, hard: int) -> None:
    """Set a limit, keeping what the host itself is held to where that is lower."""
    ceiling = resource.getrlimit(which)[1]
    if ceiling != resource.RLIM_INFINITY:
        soft, hard = min(soft, ceiling), min(hard, ceiling)
    resource.setrlimit(which, (soft, hard))
