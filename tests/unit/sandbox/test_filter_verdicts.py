"""Every system call gets the right verdict on both architectures; an interpreter of the tests' own runs the filters."""

from __future__ import annotations

import errno
import struct

import pytest

from roll_core.sandbox.kernel.bpf import Program
from roll_core.sandbox.kernel.filter import ALLOW, KILL, build_filter, error
from roll_core.sandbox.kernel.syscalls import ARCHITECTURES, Architecture
from roll_core.sandbox.types import LEVELS, Level

PID = 4242
EPERM, EACCES, ENOSYS = error(errno.EPERM), error(errno.EACCES), error(errno.ENOSYS)


def words(text: str) -> list[str]:
    return text.split()


EVERYWHERE = words("""
    read write close lseek mprotect munmap brk rt_sigaction rt_sigprocmask rt_sigreturn pread64 pwrite64 readv writev
    sched_yield mremap madvise dup dup3 pipe2 nanosleep getitimer setitimer getpid recvfrom sendmsg recvmsg shutdown
    getsockname getpeername getsockopt exit exit_group wait4 waitid uname umask getrlimit getrusage getuid
    geteuid getgid getegid getppid gettid sigaltstack futex sched_getaffinity set_robust_list set_tid_address rseq
    clock_gettime clock_getres clock_nanosleep epoll_create1 epoll_ctl epoll_pwait pselect6 ppoll timerfd_create
    eventfd2 getrandom membarrier close_range fstat
""")
PATHS = words("""
    openat newfstatat statx faccessat faccessat2 readlinkat renameat2 mkdirat unlinkat symlinkat linkat getdents64 chdir
    getcwd statfs open stat lstat access readlink rename mkdir rmdir unlink symlink link creat
""")
NOWHERE = words("""
    socket connect bind listen accept accept4 sendmmsg recvmmsg ptrace process_vm_readv process_vm_writev kcmp mount
    umount2 pivot_root chroot unshare setns open_tree move_mount fsopen fsconfig fsmount fspick mount_setattr keyctl
    add_key request_key bpf perf_event_open userfaultfd io_uring_setup io_uring_enter io_uring_register io_setup
    io_submit personality shmget shmat shmctl shmdt msgget msgsnd msgrcv msgctl semget semop semctl mq_open mq_unlink
    mq_notify memfd_create memfd_secret open_by_handle_at name_to_handle_at chown fchown lchown fchownat setuid setgid
    setresuid setresgid setreuid setregid setgroups setfsuid setfsgid capset sched_setaffinity sched_setscheduler
    sched_setparam sched_setattr mknod mknodat inotify_init1 inotify_add_watch fanotify_init fanotify_mark pidfd_open
    pidfd_getfd pidfd_send_signal rt_sigqueueinfo rt_tgsigqueueinfo reboot syslog acct swapon swapoff init_module
    finit_module delete_module kexec_load kexec_file_load quotactl sethostname setdomainname settimeofday
    clock_settime clock_adjtime adjtimex vmsplice splice tee process_madvise process_mrelease landlock_create_ruleset
    landlock_add_rule landlock_restrict_self seccomp ioprio_set mlockall migrate_pages move_pages vhangup lookup_dcookie
    nfsservctl iopl ioperm modify_ldt uselib ustat sysfs remap_file_pages openat2 get_robust_list signalfd4 mbind
    set_mempolicy setxattr getxattr lsm_set_self_attr statmount listmount open_tree_attr map_shadow_stack
""")
METADATA = words("fchmod fchmodat utimensat truncate chmod utime utimes")
PROCESSES = words("execve execveat setsid setpgid tkill fork vfork")


def verdict(program: Program, audit: int, number: int, *arguments: int) -> int:
    """Run a filter as the kernel would."""
    words = [argument & (2**64 - 1) for argument in (*arguments, 0, 0, 0, 0, 0, 0)[:6]]
    data = struct.pack("<IIQ6Q", number, audit, 0, *words)
    code = program.for_pid(PID)
    at = accumulator = 0
    while True:
        operation, if_true, if_false, k = struct.unpack_from("HBBI", code, at * 8)
        at += 1
        match operation:
            case 0x20:
                (accumulator,) = struct.unpack_from("<I", data, k)
            case 0x54:
                accumulator &= k
            case 0x06:
                return k
            case 0x05:
                at += k
            case 0x15:
                at += if_true if accumulator == k else if_false
            case 0x35:
                at += if_true if accumulator >= k else if_false
            case 0x45:
                at += if_true if accumulator & k else if_false
            case _:
                raise AssertionError(f"unknown instruction {operation:#x}")


class Asked:
    """A filter that is asked by the names of calls."""

    def __init__(self, architecture: Architecture, level: Level, allow_processes: bool = False) -> None:
        self.architecture = architecture
        self.program = build_filter(architecture, level, allow_processes=allow_processes)

    def __call__(self, name: str, *arguments: int) -> int:
        return verdict(self.program, self.architecture.audit, self.architecture.numbers[name], *arguments)

    def known(self, names: list[str]) -> list[str]:
        return [name for name in names if name in self.architecture.numbers]


@pytest.fixture(params=ARCHITECTURES.values(), ids=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> Architecture:
    return request.param


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Level:
    return request.param


@pytest.fixture
def asked(architecture: Architecture, level: Level) -> Asked:
    return Asked(architecture, level)


def test_calls_for_computing_are_allowed(asked: Asked) -> None:
    assert [name for name in asked.known(EVERYWHERE) if asked(name) != ALLOW] == []


def test_paths_need_a_confined_file_system(asked: Asked, level: Level) -> None:
    expected = EACCES if level == "seccomp" else ALLOW
    assert [name for name in asked.known(PATHS) if asked(name) != expected] == []


def test_dangerous_calls_are_refused(asked: Asked) -> None:
    arguments = (0, 0, 0, 0, 0, 0), (1, 2, 3, 4, 5, 6), (-1, -1, -1, -1, -1, -1)
    allowed = [name for name in asked.known(NOWHERE) for a in arguments if asked(name, *a) in (ALLOW, KILL)]
    assert allowed == []


def test_everything_is_decided_and_nothing_is_allowed_that_is_not_listed(asked: Asked, level: Level) -> None:
    listed = {*EVERYWHERE, *(PATHS if level != "seccomp" else ()), *(METADATA if level == "ns" else ())}
    allowed = {name for name in asked.architecture.numbers if asked(name, 0, 0, 0, 0) == ALLOW}
    harmless = words("""
        arch_prctl epoll_create fallocate fdatasync fsync flock eventfd epoll_wait epoll_pwait2 fadvise64 fstatfs fchdir
        futex_requeue futex_wait futex_waitv futex_wake getcpu getgroups getpgid getpgrp getpriority getresgid getresuid
        getsid gettimeofday mincore mlock munlock msync pause pipe poll preadv preadv2 pwritev pwritev2 readahead
        restart_syscall rt_sigpending rt_sigsuspend rt_sigtimedwait sched_get_priority_max sched_get_priority_min
        sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval select sendfile splice sysinfo tee time
        timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_gettime timerfd_settime times
        copy_file_range dup2 alarm capget ftruncate fchmodat2 futimesat renameat getdents
        fcntl mmap prlimit64 setrlimit setpriority sendto clock_nanosleep
    """)
    assert allowed - listed <= set(harmless)
    assert all(asked_number(asked, number) in (ENOSYS, KILL) for number in (*range(600, 3000), 0x3FFFFFFF))


def asked_number(asked: Asked, number: int) -> int:
    return verdict(asked.program, asked.architecture.audit, number)


def test_other_abis_are_killed(asked: Asked) -> None:
    other = {0xC000003E: 0x40000003, 0xC00000B7: 0x40000028}[asked.architecture.audit]
    assert verdict(asked.program, other, 0) == KILL
    assert asked_number(asked, 0x40000000) == KILL
    assert asked_number(asked, 0x40000000 | 39) == KILL


def test_metadata_changes_need_a_root_of_its_own(asked: Asked, level: Level) -> None:
    expected = ALLOW if level == "ns" else EPERM
    assert [name for name in asked.known(METADATA) if asked(name) != expected] == []


def test_threads_are_made_and_processes_are_not(architecture: Architecture) -> None:
    plain, family = Asked(architecture, "ns"), Asked(architecture, "ns", allow_processes=True)
    thread, process = 0x3D0F00, 0x01200011
    assert plain("clone", thread) == family("clone", thread) == family("clone", process) == ALLOW
    for flags in (process, 17, 0x4000 | 17, 0):
        assert plain("clone", flags) == EPERM
    for namespace in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000, 0x80):
        for asked in (plain, family):
            assert asked("clone", namespace | thread) == asked("clone", namespace | 17) == EPERM
    for asked in (plain, family):
        assert asked("clone3") == ENOSYS
    assert [name for name in plain.known(PROCESSES) if plain(name) != EPERM] == []
    assert [name for name in family.known(PROCESSES) if family(name) != ALLOW] == []


def test_signals_go_to_the_process_itself(architecture: Architecture) -> None:
    plain, family = Asked(architecture, "landlock"), Asked(architecture, "ns", allow_processes=True)
    for call in ("kill", "tgkill"):
        assert plain(call, PID, 9) == ALLOW
        for other in (0, 1, -1, -PID, PID + 1):
            assert plain(call, other, 9) == EPERM
            assert family(call, other, 9) == ALLOW


def test_questions_are_about_itself(architecture: Architecture) -> None:
    questions = words("getpgid getsid sched_getparam sched_getscheduler sched_getattr sched_rr_get_interval")
    for asked in (Asked(architecture, "landlock"), Asked(architecture, "seccomp")):
        for call in (*questions, "sched_getaffinity"):
            assert (asked(call, 0), asked(call, PID)) == (ALLOW, ALLOW)
            answer = ENOSYS if call == "sched_getaffinity" else EPERM
            assert {asked(call, other) for other in (1, -1, PID + 1)} == {answer}
        assert asked("getpriority", 0, 0) == asked("getpriority", 0, PID) == ALLOW
        assert asked("getpriority", 0, PID + 1) == asked("getpriority", 2, 1) == EPERM
    contained = Asked(architecture, "ns")
    assert {contained(call, 5) for call in questions} == {ALLOW}


def test_clocks_are_its_own(architecture: Architecture) -> None:
    clocks = words("clock_gettime clock_getres clock_nanosleep timer_create")
    own = [*range(16), *(~0 << 3 | kind for kind in range(3)), *(~thread << 3 | 6 for thread in (0, PID, PID + 1))]
    others = [16, 1000, *(~process << 3 | kind for process in (1, PID, PID + 1) for kind in range(4)), ~0 << 3 | 3]
    for asked in (Asked(architecture, "landlock"), Asked(architecture, "seccomp")):
        assert {asked(call, clock) for call in clocks for clock in own} == {ALLOW}
        assert {asked(call, clock) for call in clocks for clock in others if not clock & 4} == {EPERM}
    assert {Asked(architecture, "ns")(call, clock) for call in clocks for clock in own + others} == {ALLOW}


def test_limits_are_its_own(asked: Asked) -> None:
    assert asked("prlimit64", 0) == asked("prlimit64", PID) == ALLOW
    assert asked("prlimit64", 1) == asked("prlimit64", -1) == EPERM
    core, stack, descriptors = 4, 3, 7
    assert asked("prlimit64", 0, descriptors, 0x1000) == asked("prlimit64", 0, core, 0) == ALLOW
    assert asked("prlimit64", 0, core, 0x1000) == asked("prlimit64", PID, core, 1 << 40) == error(0)
    assert asked("prlimit64", 0, stack, 0x1000) == asked("prlimit64", PID, stack, 1 << 40) == error(0)
    assert asked("prlimit64", 0, stack, 0) == ALLOW
    if "setrlimit" in asked.architecture.numbers:
        assert [asked("setrlimit", which) for which in (descriptors, stack, core)] == [ALLOW, error(0), error(0)]
    assert asked("setpriority", 0, 0, 5) == ALLOW
    for which, who in ((0, 1), (1, 0), (2, 0), (0, PID), (0, 1 << 32)):
        assert asked("setpriority", which, who, 5) == EPERM


def test_sockets_are_pairs_without_addresses(asked: Asked) -> None:
    stream, datagram, packet, flags = 1, 2, 5, 0o2004000
    for kind in (stream, packet):
        assert asked("socketpair", 1, kind) == asked("socketpair", 1, kind | flags) == ALLOW
    for family, kind in ((1, datagram), (1, datagram | flags), (1, 3), (2, stream), (16, 3), (40, stream)):
        assert asked("socketpair", family, kind) == EPERM
    assert asked("sendto", 3, 1, 1, 0, 0, 0) == ALLOW
    assert asked("sendto", 3, 1, 1, 0, 0x1000, 16) == asked("sendto", 3, 1, 1, 0, 1 << 40, 16) == EPERM
    assert asked("setsockopt", 3, 1, 7) == ALLOW
    for level, option in ((1, 26), (1, 32), (1, 50), (6, 7), (0, 2)):
        assert asked("setsockopt", 3, level, option) == EPERM


def test_control_calls_do_little(asked: Asked) -> None:
    for command in (0x5450, 0x5451, 0x5421, 0x5401, 0x5413, 0x541B):
        assert asked("ioctl", 0, command) == ALLOW
    for command in (0x5412, 0x5402, 0x540E, 0x5423, 0x8912, 0xC020660B, 0x5452):
        assert asked("ioctl", 0, command) == error(errno.ENOTTY)
    for command in (0, 1, 2, 3, 4, 5, 6, 7, 1030, 1032, 1034):
        assert asked("fcntl", 0, command) == ALLOW
    for command in (8, 10, 15, 1024, 1026, 1031, 1033, 1036):
        assert asked("fcntl", 0, command) == EPERM
    for option in (15, 16, 0x53564D41):
        assert asked("prctl", option) == ALLOW
    for option in (1, 4, 8, 22, 23, 24, 28, 35, 36, 38, 0x59616D61):
        assert asked("prctl", option) == EPERM


def test_huge_pages_are_refused(asked: Asked) -> None:
    assert asked("mmap", 0, 4096, 3, 0x22) == ALLOW
    assert asked("mmap", 0, 4096, 3, 0x40022) == asked("mmap", 0, 4096, 3, 0x40022 | 21 << 26) == EPERM


def test_stat_of_a_descriptor_needs_no_path(architecture: Architecture) -> None:
    asked = Asked(architecture, "seccomp")
    assert asked("newfstatat", 1, 1, 1, 0x1000) == ALLOW
    assert asked("newfstatat", 1, 1, 1, 0) == asked("newfstatat", 1, 1, 1, 0x100) == EACCES


def test_programs_are_valid_and_short(asked: Asked) -> None:
    code = asked.program.code
    count = len(code) // 8
    assert count < 450
    for at in range(count):
        operation, if_true, if_false, k = struct.unpack_from("HBBI", code, at * 8)
        if operation == 0x05:
            assert at + 1 + k < count
        elif operation not in (0x20, 0x54, 0x06):
            assert at + 1 + max(if_true, if_false) < count
    assert struct.unpack_from("HBBI", code, (count - 1) * 8)[0] == 0x06
