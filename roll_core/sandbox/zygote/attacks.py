"""The self-test's attacks, run in a locked-down child like any program. Each must fail.

An attack succeeds when it does what a jail forbids, or when the kernel answers as it does only behind the filter. None
does harm where it succeeds.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
from collections.abc import Callable
from typing import Any, NoReturn

from roll_core.sandbox.kernel import libc
from roll_core.sandbox.zygote.root import SCRATCH

MODE = "self-test"
"""The job that runs them."""
RESULT_FD = 3
_PTRACE_SEIZE = 0x4206
_F_SETOWN, _F_SETSIG = 8, 10
_KERNEL_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ESRCH)
_TOO_MUCH_MB = 4096

Attack = Callable[[dict[str, Any]], object]
"""Raises when it fails."""


def _read_passwd(_: dict[str, Any]) -> object:
    return os.open("/etc/passwd", os.O_RDONLY)


def _read_secret(plants: dict[str, Any]) -> object:
    return os.open(plants["secret"], os.O_RDONLY)


def _read_own_proc(_: dict[str, Any]) -> object:
    return os.open("/proc/self/environ", os.O_RDONLY)


def _read_host_proc(plants: dict[str, Any]) -> object:
    return os.open(f"/proc/{plants['pid']}/environ", os.O_RDONLY)


def _write_beside_secret(plants: dict[str, Any]) -> object:
    return os.open(plants["secret"] + ".new", os.O_WRONLY | os.O_CREAT, 0o600)


def _change_secret_mode(plants: dict[str, Any]) -> None:
    os.chmod(plants["secret"], 0o600)


def _list_root(_: dict[str, Any]) -> None:
    if "etc" not in os.listdir("/"):
        raise FileNotFoundError


def _make_tcp_socket(_: dict[str, Any]) -> object:
    return socket.socket(socket.AF_INET, socket.SOCK_STREAM)


def _make_unix_socket(_: dict[str, Any]) -> object:
    return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)


def _send_to_host_socket(plants: dict[str, Any]) -> object:
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    return one.sendto(b"x", "\0" + plants["abstract"])


def _fork(_: dict[str, Any]) -> object:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    return pid


def _signal_host(plants: dict[str, Any]) -> None:
    os.kill(plants["pid"], 0)


def _signal_zygote(_: dict[str, Any]) -> None:
    parent = os.getppid()
    if parent == 0:  # it is in another pid namespace
        raise ProcessLookupError
    os.kill(parent, 0)


def _signal_everybody(_: dict[str, Any]) -> None:
    os.kill(-1, 0)


def _limit_host(plants: dict[str, Any]) -> object:
    return resource.prlimit(plants["pid"], resource.RLIMIT_NOFILE)


def _own_a_signal(plants: dict[str, Any]) -> object:
    fcntl.fcntl(0, _F_SETSIG, 0)
    return fcntl.fcntl(0, _F_SETOWN, plants["pid"])


def _trace_host(plants: dict[str, Any]) -> object:
    return libc.syscall("ptrace", _PTRACE_SEIZE, plants["pid"], 0, 0)


def _call(name: str, *arguments: int | bytes | None) -> Attack:
    def attack(_: dict[str, Any]) -> object:
        return libc.syscall(name, *arguments)

    return attack


def _raise_limit(_: dict[str, Any]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _take_memory(_: dict[str, Any]) -> object:
    return mmap.mmap(-1, _TOO_MUCH_MB << 20)


def _find_descriptors(plants: dict[str, Any]) -> object:
    for fd in range(RESULT_FD + 1, plants["descriptors"]):
        try:
            return os.fstat(fd)
        except OSError:
            continue
    raise FileNotFoundError


def _find_environment(_: dict[str, Any]) -> object:
    extra = set(os.environ) - {"PATH", "HOME", "TMPDIR", "LANG", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}
    if not extra:
        raise KeyError
    return extra


def _become_root(_: dict[str, Any]) -> None:
    os.setresuid(0, 0, 0)


def _write_outside_scratch(_: dict[str, Any]) -> object:
    return os.open(f"{os.path.dirname(SCRATCH)}/x", os.O_WRONLY | os.O_CREAT, 0o600)


def _execute(_: dict[str, Any]) -> None:
    os.execv("/bin/true", ["true"])  # noqa: S606 - it must not succeed


def _outnumber(plants: dict[str, Any]) -> None:
    for _ in range(plants["processes"]):  # this process counts too
        if os.fork() == 0:
            signal.pause()


ATTACKS: dict[str, Attack] = {
    "read /etc/passwd": _read_passwd,
    "read a planted file": _read_secret,
    "read /proc/self/environ": _read_own_proc,
    "read the environment of the host": _read_host_proc,
    "write beside a planted file": _write_beside_secret,
    "change the mode of a planted file": _change_secret_mode,
    "write outside the scratch folder": _write_outside_scratch,
    "list /": _list_root,
    "make a TCP socket": _make_tcp_socket,
    "make a Unix socket": _make_unix_socket,
    "send to a Unix socket of the host": _send_to_host_socket,
    "signal the host": _signal_host,
    "signal the zygote": _signal_zygote,
    "change limits of the host": _limit_host,
    "have the kernel signal the host": _own_a_signal,
    "trace the host": _trace_host,
    "make a memory file": _call("memfd_create", b"x", 0),
    "make a user namespace": _call("unshare", libc.CLONE_NEWUSER),
    "make a user namespace by clone3": _call("clone3", None, 0),
    "mount": _call("mount", b"none", b"/nowhere", b"tmpfs", 0, None),
    "enter a namespace": _call("setns", 0, 0),
    "use io_uring": _call("io_uring_setup", 1, None),
    "use bpf": _call("bpf", 0, None, 0),
    "use userfaultfd": _call("userfaultfd", 0),
    "use keys": _call("keyctl", 0, -3, 0),
    "use perf events": _call("perf_event_open", None, 0, -1, -1, 0),
    "use shared memory": _call("shmget", 1, 4096, 0),
    "open a process": _call("pidfd_open", 1, 0),
    "raise a limit": _raise_limit,
    "take 4 GiB": _take_memory,
    "find other descriptors": _find_descriptors,
    "find the environment of the host": _find_environment,
    "become root": _become_root,
}
"""By what each tries to do."""

PROCESS_ATTACKS: dict[str, Attack] = {
    "signal everybody": _signal_everybody,
    "fork": _fork,
    "execute": _execute,
}
"""Allowed where processes are; last, as executing leaves no one to report."""


FAMILY_ATTACKS: dict[str, Attack] = {"outnumber its limit": _outnumber}
"""Tried where processes are allowed: the kernel does not count those of its own root user."""


def main(plants: dict[str, Any]) -> NoReturn:
    """Try everything, report what succeeded to the result file, end.

    Args:
        plants: what the host has put up to be attacked; see `roll_core.sandbox.selftest`.
    """
    attacks = ATTACKS | (FAMILY_ATTACKS if plants["allow_processes"] else PROCESS_ATTACKS)
    succeeded = [name for name, attack in attacks.items() if _succeeds(attack, plants)]
    os.write(RESULT_FD, json.dumps({"tried": list(attacks), "succeeded": succeeded}).encode())
    os._exit(0)


def _succeeds(attack: Attack, plants: dict[str, Any]) -> bool:
    try:
        attack(plants)
    except OSError as error:
        is_raw_call = attack.__name__ == "attack"
        return is_raw_call and error.errno not in _KERNEL_REFUSALS
    except (ValueError, KeyError, MemoryError):
        return False
    return True
