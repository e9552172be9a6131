"""Which system calls a jailed program may make: what CPython and numpy need for computing, and nothing else.

A call that is named nowhere here is refused. Names of calls that an architecture lacks are ignored there.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


COMPUTING = _names("""
    read write close fstat poll lseek mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64 pwrite64
    readv writev pipe select sched_yield mremap msync mincore madvise dup dup2 pause nanosleep getitimer alarm
    setitimer getpid sendfile recvfrom sendmsg recvmsg shutdown getsockname getpeername getsockopt exit wait4 uname
    flock fsync fdatasync ftruncate umask gettimeofday getrlimit getrusage sysinfo times getuid getgid geteuid getegid
    getppid getpgrp getgroups getresuid getresgid getpgid getsid capget rt_sigpending rt_sigtimedwait rt_sigsuspend
    sigaltstack fstatfs getpriority sched_getparam sched_getscheduler sched_get_priority_max sched_get_priority_min
    sched_rr_get_interval arch_prctl gettid readahead time futex sched_getaffinity set_tid_address
    restart_syscall fadvise64 timer_create timer_settime timer_gettime timer_getoverrun timer_delete clock_gettime
    clock_getres clock_nanosleep exit_group epoll_wait epoll_ctl epoll_create waitid pselect6 ppoll set_robust_list
    epoll_pwait timerfd_create eventfd fallocate timerfd_settime timerfd_gettime eventfd2 epoll_create1 dup3
    pipe2 preadv pwritev getcpu sched_getattr getrandom membarrier copy_file_range preadv2 pwritev2 rseq close_range
    epoll_pwait2 futex_waitv futex_wake futex_wait futex_requeue mlock munlock
""")
"""At every level."""

QUESTIONS = _names("getpgid getsid sched_getparam sched_getscheduler sched_getattr sched_rr_get_interval")
"""Of these, calls that take the number of the process that they ask about."""

CLOCKS = _names("clock_gettime clock_getres clock_nanosleep timer_create")
"""And calls that take a clock, which may be another process's CPU time."""

PATHS = _names("""
    open openat stat lstat newfstatat access faccessat faccessat2 readlink readlinkat statx rename renameat renameat2
    mkdir mkdirat rmdir creat link linkat unlink unlinkat symlink symlinkat getdents getdents64 chdir fchdir getcwd
    statfs
""")
"""Calls that take or walk paths: where namespaces or Landlock confine them."""

METADATA = _names("chmod fchmod fchmodat fchmodat2 utime utimes utimensat futimesat truncate")
"""Landlock does not mediate these (or not always): only where the program has a root of its own."""

PROCESSES = _names("fork vfork execve execveat kill tgkill tkill setsid setpgid")
"""Only in a pid namespace of the run's own, and only when processes are asked for."""

FIRST_RECENT = 424
"""From this number on, the same on all architectures, a refused call is answered with ENOSYS, as a kernel that does not
know it would, so that libraries fall back to older calls. An older call is answered with EPERM."""

UNSUPPORTED = _names("""
    getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr setxattr lsetxattr fsetxattr removexattr lremovexattr
    fremovexattr
""")
"""Answered with EOPNOTSUPP, which honest code (`shutil.copystat`) passes over."""
