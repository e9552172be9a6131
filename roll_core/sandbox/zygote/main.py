"""Start of a zygote: `python -I -S -B -c "<bootstrap>" <control descriptor>`, told the rest over the channel."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from roll_core.sandbox.kernel import landlock, libc
from roll_core.sandbox.kernel.filter import build_filter
from roll_core.sandbox.kernel.syscalls import this_architecture
from roll_core.sandbox.wire import MAX_PACKET, Started, ZygoteConfig, decode, encode
from roll_core.sandbox.zygote import identity, memory_modules, root
from roll_core.sandbox.zygote.loop import Loop
from roll_core.sandbox.zygote.state import Prepared
from roll_core.sandbox.zygote.usage import Proc

_NAMESPACES = libc.CLONE_NEWNS | libc.CLONE_NEWIPC | libc.CLONE_NEWUTS | libc.CLONE_NEWNET | libc.CLONE_NEWCGROUP


@dataclass(slots=True)
class _Identity:
    uid: int
    gid: int
    run_uids: range | None = None
    own_pid_namespace: int | None = None


def main(control_fd: int) -> NoReturn:
    """Read the configuration, prepare, say `Started`, serve until the host is gone."""
    control = socket.socket(fileno=control_fd)
    try:
        config = ZygoteConfig(**decode(control.recv(MAX_PACKET)))
        _reset_signals()
        prepared = _prepare(config, control)
    except Exception as error:  # noqa: BLE001 - whatever it is, the host must hear of it
        control.send(encode(Started(error=f"{type(error).__name__}: {error}")))
        os._exit(1)
    control.send(encode(Started()))
    _set_environment(root.SCRATCH if config.level == "ns" else "/")
    gc.collect()
    gc.freeze()
    Loop(control, prepared).serve()


def _reset_signals() -> None:
    """Forget what the host's thread ignored or blocked."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGXCPU, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _set_environment(home: str) -> None:
    """The whole environment of every program."""
    os.environ.clear()
    os.environ.update(PATH="/usr/bin:/bin", HOME=home, TMPDIR=home, LANG="C.UTF-8")
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")


def _prepare(config: ZygoteConfig, control: socket.socket) -> Prepared:
    proc = Proc(os.open("/proc", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC))
    if config.allow_processes and not proc.tells_children():
        raise OSError(errno.ENOSYS, "this kernel does not tell a process's children (CONFIG_PROC_CHILDREN)")
    guards = [os.pidfd_open(os.getppid())]
    if config.level == "ns":
        guards.append(os.pidfd_open(os.getpid()))
        who = _enter_namespaces(config, proc, control, guards)
        _import_all(config)
    else:
        who = _stay_outside(config)
    ruleset = None
    if config.level == "landlock" or (config.level == "ns" and landlock.landlock_abi()):
        writable = ["/dev/null", *([root.SCRATCH_PARENT] if config.level == "ns" else [])]
        readable = [*config.readable, "/dev/urandom", "/dev/random", "/dev/zero"]
        ruleset = landlock.make_ruleset([path for path in readable if os.path.exists(path)], writable)
    program = build_filter(this_architecture(), config.level, allow_processes=config.allow_processes)
    return Prepared(
        config=config,
        proc=proc,
        uid=who.uid,
        gid=who.gid,
        run_uids=who.run_uids,
        program=program,
        ruleset=ruleset,
        own_pid_namespace=who.own_pid_namespace,
        guards=tuple(guards),
        address_space=proc.address_space_bytes(),
        resident=proc.resident_bytes("self"),
    )


def _enter_namespaces(config: ZygoteConfig, proc: Proc, control: socket.socket, guards: Sequence[int]) -> _Identity:
    """Leave the host; as real root the mounts are made before the ids are given up, so that all paths are in reach."""
    who = _Identity(os.getuid(), os.getgid())
    uids = identity.unprivileged_uids()
    has_mounts = False
    if uids is not None:
        who = _Identity(uids[0], uids[0])
        try:
            libc.unshare(_NAMESPACES)
            has_mounts = True
            root.build_root(config.readable)
        except PermissionError:  # root of a container, without CAP_SYS_ADMIN
            if has_mounts:
                raise
        identity.become(who.uid)
    libc.unshare(libc.CLONE_NEWUSER | libc.CLONE_NEWPID | (0 if has_mounts else _NAMESPACES))
    identity.map_own_ids(proc.fd, who.uid, who.gid)
    if not has_mounts:
        root.build_root(config.readable)
    pid = os.fork()
    if pid:
        control.close()
        _outlive(pid, guards[0])
    libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
    who.own_pid_namespace = os.open("self/ns/pid", os.O_RDONLY | os.O_CLOEXEC, dir_fd=proc.fd)
    return who


def _outlive(zygote: int, host: int) -> NoReturn:
    """The launcher's life: wait for the end of the zygote or of the host, then end the other."""
    poll = select.poll()
    for fd in (os.pidfd_open(zygote), host):
        poll.register(fd, select.POLLIN)
    poll.poll()
    os.kill(zygote, signal.SIGKILL)
    os._exit(0)


def _stay_outside(config: ZygoteConfig) -> _Identity:
    """Without namespaces: programs of a root host become other users, so a readable interpreter is not certain."""
    who = _Identity(os.getuid(), os.getgid())
    who.run_uids = identity.unprivileged_uids()
    _import_all(config)
    if config.level == "seccomp" or not all(_is_public(path) for path in config.readable):
        memory_modules.serve_from_memory(config.preload)
    return who


def _is_public(path: str) -> bool:
    """Whether everybody may read what is at `path`."""
    status = os.stat(path)
    if not status.st_mode & 0o004:
        return False
    while path != "/":
        path = os.path.dirname(path)
        if not os.stat(path).st_mode & 0o001:
            return False
    return True


def _import_all(config: ZygoteConfig) -> None:
    sys.path.extend(config.import_paths)
    for name in config.preload:
        importlib.import_module(name)
