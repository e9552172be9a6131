"""Programs that reach for the host. Each is bounded, and says BROKE when it gets what it wants."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from roll_core.sandbox import Limits, Sandbox
from roll_core.sandbox.kernel.syscalls import this_architecture

LIMITS = Limits(cpu_s=2.0, wall_s=4.0, memory_mb=256, output_kb=256, processes=16, disk_mb=8)
SECRET = "PLANTED-8675309"

PRELUDE = """
import ctypes, errno, fcntl, os, socket, struct, sys
NR = @NUMBERS@
LIBC = ctypes.CDLL(None, use_errno=True)
SECRET_FILE, PID, PORT, ABSTRACT, PATH = @PLANTS@
class Blocked(Exception): pass
def check(condition):
    if not condition: raise Blocked
def call(name, *arguments):
    result = LIBC.syscall(NR[name], *arguments)
    if result < 0: raise OSError(ctypes.get_errno(), name)
    return result
def reach(name, *arguments):
    try: call(name, *arguments)
    except OSError as error: check(error.errno not in (errno.EPERM, errno.ENOSYS, errno.EACCES))
"""
BODY = """
try:
@ATTACK@
except BaseException as error:
    print("blocked", type(error).__name__, error)
else:
    print("BROKE")
"""

READING = {
    "passwd": "open('/etc/passwd').read()",
    "planted file": "open(SECRET_FILE).read()",
    "planted file through ..": "open('../../../../../..' + SECRET_FILE).read()",
    "planted file through a symbolic link": "os.symlink(SECRET_FILE, 'link'); open('link').read()",
    "planted file through a hard link": "os.link(SECRET_FILE, 'link'); open('link').read()",
    "planted file through /proc/self/root": "open('/proc/self/root' + SECRET_FILE).read()",
    "planted file through /proc/1/root": "open('/proc/1/root' + SECRET_FILE).read()",
    "planted file through a descriptor": """
        for fd in range(64):
            try: os.open(SECRET_FILE.lstrip('/'), os.O_RDONLY, dir_fd=fd); break
            except OSError: pass
        else: raise Blocked
    """,
    "planted file by sendfile": "os.sendfile(1, os.open(SECRET_FILE, os.O_RDONLY), 0, 100)",
    "listing of its folder": "check(os.listdir(os.path.dirname(SECRET_FILE)))",
    "listing of /": "check('etc' in os.listdir('/'))",
    "listing of /root": "os.listdir('/root')",
    "host environment by /proc": "open(f'/proc/{PID}/environ').read()",
    "environment of pid 1": "check('SANDBOX_TEST' in open('/proc/1/environ').read())",
    "own environment": "check('PLANTED' in str(dict(os.environ)))",
    "environment of the C library": """
        array = ctypes.POINTER(ctypes.c_char_p).in_dll(LIBC, 'environ')
        text, i = b'', 0
        while array[i]: text += array[i]; i += 1
        check(b'PLANTED' in text)
    """,
    "own memory map": "open('/proc/self/maps').read()",
    "own memory file": "open('/proc/self/mem', 'rb')",
    "/dev/shm of the host": "check(os.listdir('/dev/shm') and not os.access('/sandbox/work', os.W_OK))",
    "/sys": "os.listdir('/sys')",
    "/dev": "check(set(os.listdir('/dev')) - {'null', 'zero', 'full', 'urandom', 'random', 'shm'})",
    "device of the kernel log": "os.open('/dev/kmsg', os.O_RDONLY)",
    "a file by handle": "reach('open_by_handle_at', -100, None, 0)",
    "memory of the host": """
        data = ctypes.create_string_buffer(8)
        vector = struct.pack('QQ', ctypes.addressof(data), 8)
        reach('process_vm_readv', PID, vector, 1, vector, 1, 0)
    """,
}

WRITING = {
    "planted file": "open(SECRET_FILE, 'a').write('x')",
    "beside the planted file": "open(SECRET_FILE + '.new', 'w')",
    "nameless file": "os.open('/var/tmp', os.O_TMPFILE | os.O_RDWR)",
    "/var/tmp": "open('/var/tmp/sandbox-was-here', 'w')",
    "/tmp of the host": """
        open('/tmp/sandbox-was-here', 'w')
        check(not os.path.samefile('/tmp', os.getcwd()))
    """,
    "removal": "os.unlink(SECRET_FILE)",
    "renaming": "os.rename(SECRET_FILE, SECRET_FILE + '.old')",
    "mode": "os.chmod(SECRET_FILE, 0o777)",
    "times": "os.utime(SECRET_FILE, (0, 0))",
    "truncation": "os.truncate(SECRET_FILE, 0)",
    "owner": "os.chown(SECRET_FILE, os.getuid(), os.getgid())",
    "extended attribute": "os.setxattr(SECRET_FILE, 'user.x', b'x')",
    "device node": "os.mknod('node', 0o020666, os.makedev(1, 1))",
    "standard library": "open(os.__file__, 'a')",
    "site-packages": "open(os.path.join(os.path.dirname(os.__file__), 'site-packages', 'sandbox_was_here.py'), 'w')",
    "file mode creation by mkdir": "os.mkdir('/var/tmp/sandbox-was-here')",
    "remounting": "reach('mount', None, b'/', None, 32, None)",
}

TALKING = {
    "TCP": "socket.create_connection(('127.0.0.1', PORT), 1)",
    "UDP": "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT))",
    "IPv6": "socket.socket(socket.AF_INET6, socket.SOCK_STREAM)",
    "listening": "socket.create_server(('127.0.0.1', 0))",
    "Unix socket by path": "socket.socket(socket.AF_UNIX).connect(PATH)",
    "abstract Unix socket": "socket.socket(socket.AF_UNIX).connect(ABSTRACT)",
    "datagram to a Unix socket": "socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b'x', ABSTRACT)",
    "message to a Unix socket": "socket.socketpair(type=socket.SOCK_DGRAM)[0].sendmsg([b'x'], [], 0, ABSTRACT)",
    "stream message to a Unix socket": "check(socket.socketpair()[0].sendmsg([b'x'], [], 0, ABSTRACT) > 1)",
    "packet to a Unix socket": "socket.socketpair(type=socket.SOCK_SEQPACKET)[0].sendto(b'x', ABSTRACT)",
    "packet message to a Unix socket": """
        one, two = socket.socketpair(type=socket.SOCK_SEQPACKET)
        two.setblocking(False)
        one.sendmsg([b'x'], [], 0, ABSTRACT)
        check(not two.recv(1))
    """,
    "connecting a pair": "socket.socketpair()[0].connect(ABSTRACT)",
    "binding a pair": "socket.socketpair()[0].bind('\\0sandbox-was-here')",
    "netlink": "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
    "vsock": "socket.socket(40, socket.SOCK_STREAM)",
    "kernel crypto": "socket.socket(38, socket.SOCK_SEQPACKET)",
    "socket filter": "socket.socketpair()[0].setsockopt(1, 26, struct.pack('HxxxxxxQ', 0, 0))",
    "name service": "socket.getaddrinfo('localhost', 80)[0] and socket.create_connection(('localhost', PORT), 1)",
}

COMMANDING = {
    "kill": "os.kill(PID, 0)",
    "kill the victim": "os.kill(PID, 9)",
    "kill the parent": "check(os.getppid() > 0); os.kill(os.getppid(), 9)",
    "kill everybody": "os.kill(-1, 9)",
    "kill the group": "os.kill(0, 9)",
    "kill a thread": "call('tgkill', PID, PID, 0)",
    "tkill": "call('tkill', PID, 0)",
    "queued signal": "reach('rt_sigqueueinfo', PID, 9, ctypes.create_string_buffer(128))",
    "signal by pidfd": "reach('pidfd_open', PID, 0)",
    "signal by owned descriptor": """
        readable, writable = os.pipe()
        fcntl.fcntl(readable, fcntl.F_SETOWN, PID); fcntl.fcntl(readable, 10, 9)
        fcntl.fcntl(readable, fcntl.F_SETFL, 0o20000); os.write(writable, b'x')
    """,
    "signal by owned descriptor, extended": "fcntl.fcntl(0, 15, struct.pack('ii', 1, PID))",
    "signal by lease": "fcntl.fcntl(0, 1024, 1)",
    "limits": "__import__('resource').prlimit(PID, 7)",
    "priority": "os.setpriority(os.PRIO_PROCESS, PID, 19)",
    "priority of the user": "os.setpriority(os.PRIO_USER, 0, 19)",
    "processors": "os.sched_setaffinity(PID, [0])",
    "scheduler": "os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))",
    "trace": "reach('ptrace', 0x4206, PID, 0, 0)",
    "being traced": "reach('ptrace', 0, 0, 0, 0)",
    "own terminal input": "fcntl.ioctl(0, 0x5412, b'x')",
    "a signal at the parent's death taken off": "check(LIBC.prctl(1, 0, 0, 0, 0) == 0)",
    "becoming root": "os.setuid(0)",
    "becoming another group": "os.setgroups([0])",
    "capabilities": "reach('capset', struct.pack('Ii', 0x20080522, 0), b'\\xff' * 24)",
    "a larger limit": "__import__('resource').setrlimit(9, (-1, -1))",
    "handling of core files": """
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        check(resource.getrlimit(resource.RLIMIT_CORE) != (1, 1))
    """,
    "session": "call('getsid', PID)",
    "process group": "call('getpgid', PID)",
    "policy of its scheduling": "os.sched_getscheduler(PID)",
    "processors that it may use": "os.sched_getaffinity(PID)",
    "parameters of its scheduling": "os.sched_getparam(PID)",
    "attributes of its scheduling": "call('sched_getattr', PID, ctypes.create_string_buffer(64), 64, 0)",
    "its slice of time": "os.sched_rr_get_interval(PID)",
    "its priority": "os.getpriority(os.PRIO_PROCESS, PID)",
    "its processor time": "__import__('time').clock_gettime((~PID << 3) | 2)",
    "the clock of its processor time": "__import__('time').clock_getres((~PID << 3) | 2)",
    "a timer on its processor time": """
        timer = ctypes.c_int()
        call('timer_create', ctypes.c_int((~PID << 3) | 2), None, ctypes.byref(timer))
    """,
    "a larger pipe": "fcntl.fcntl(os.pipe()[0], 1031, 1 << 20)",
}

KERNEL = {
    "user namespace": "reach('unshare', 0x10000000)",
    "user namespace by clone": "reach('clone', 0x10000011, 0, 0, 0, 0)",
    "namespace with a thread": "reach('clone', 0x10000000 | 0x3d0f00, 0, 0, 0, 0)",
    "process by clone": "reach('clone', 17, 0, 0, 0, 0)",
    "process by clone3": "reach('clone3', struct.pack('8Q', 0, 0, 0, 0, 17, 0, 0, 0), 64)",
    "other namespace": "reach('setns', 0, 0)",
    "other root": "reach('chroot', b'/')",
    "mount tree": "reach('open_tree', -100, b'/', 1)",
    "io_uring": "reach('io_uring_setup', 1, ctypes.create_string_buffer(120))",
    "bpf": "reach('bpf', 0, ctypes.create_string_buffer(128), 128)",
    "userfaultfd": "reach('userfaultfd', 1)",
    "keys": "reach('add_key', b'user', b'x', b'x', 1, -3)",
    "key control": "reach('keyctl', 0, -3, 1)",
    "perf events": "reach('perf_event_open', ctypes.create_string_buffer(128), 0, -1, -1, 0)",
    "memory file": "os.memfd_create('x')",
    "secret memory": "reach('memfd_secret', 0)",
    "shared memory": "reach('shmget', 0, 4096, 0o1600)",
    "message queue": "reach('mq_open', b'/x', 0o102, 0o600, None)",
    "personality": "reach('personality', 0x0040000)",
    "other filter": "reach('seccomp', 1, 0, None)",
    "huge pages": "check(LIBC.mmap(None, 1 << 21, 3, 0x40022, -1, 0) != -1)",
    "huge pages of 1 GiB": "check(LIBC.mmap(None, 1 << 30, 3, 0x40022 | 30 << 26, -1, 0) != -1)",
    "watching files": "reach('inotify_init1', 0)",
    "kernel log": "reach('syslog', 3, None, 0)",
    "host name": "reach('sethostname', b'x', 1)",
    "kernel module": "reach('finit_module', 0, b'', 0)",
    "pages of the pipe": "reach('vmsplice', os.pipe()[1], None, 0, 0)",
}

PROCESSES = {
    "fork": "os.fork() or os._exit(0)",
    "vfork": "reach('vfork') if 'vfork' in NR else check(False)",
    "daemon": """
        if os.fork() == 0:
            os.setsid(); __import__('time').sleep(60)
    """,
    "exec": "os.execv('/bin/true', ['true'])",
    "exec of a written file": """
        open('x', 'w').write('#!/bin/sh'); os.chmod('x', 0o755); os.execv('./x', ['x'])
    """,
    "exec of a descriptor": "os.execve(1, ['x'], {})",
    "exec with a huge argument": "os.execv('/bin/true', ['x' * 100_000] * 1000)",
    "spawn": "os.posix_spawn('/bin/true', ['true'], {})",
    "shell": "check(os.system('true') == 0)",
    "subprocess": "__import__('subprocess').run(['/bin/true'])",
    "multiprocessing": "__import__('multiprocessing').get_context('fork').Process(target=print).start()",
}

DESCRIPTORS = {
    "descriptors beyond its own": """
        for fd in range(4, 4096):
            try: os.fstat(fd); break
            except OSError: pass
        else: raise Blocked
    """,
    "writing to its input": "os.write(0, b'x')",
    "writing through its input": "__import__('mmap').mmap(0, 4, flags=1, prot=3)",
    "sealing its output": "fcntl.fcntl(1, 1033, 8)",
    "growing its output": "os.ftruncate(1, 1 << 40)",
    "growing its result": "os.posix_fallocate(3, 0, 1 << 30)",
    "shrinking its output": "os.ftruncate(1, 0)",
}

GROUPS = {
    "reading": READING,
    "writing": WRITING,
    "talking": TALKING,
    "commanding": COMMANDING,
    "kernel": KERNEL,
    "processes": PROCESSES,
    "descriptors": DESCRIPTORS,
}
ATTACKS = {f"{group}: {name}": source for group, attacks in GROUPS.items() for name, source in attacks.items()}


@dataclass
class Host:
    """What stands on the host to be attacked."""

    folder: Path
    victim: subprocess.Popen[bytes]
    tcp: socket.socket
    abstract: socket.socket
    by_path: socket.socket

    def program(self, attack: str) -> str:
        plants = (
            str(self.folder / "secret"),
            self.victim.pid,
            self.tcp.getsockname()[1],
            "\0" + self.abstract.getsockname()[1:].decode(),
            str(self.folder / "socket"),
        )
        prelude = PRELUDE.replace("@NUMBERS@", repr(dict(this_architecture().numbers)))
        return prelude.replace("@PLANTS@", repr(plants)) + BODY.replace("@ATTACK@", _indented(attack))

    def check(self) -> None:
        assert (self.folder / "secret").read_text() == SECRET
        assert sorted(os.listdir(self.folder)) == ["secret", "socket"]
        assert (self.folder / "secret").stat().st_mode & 0o777 == 0o644
        assert (self.folder / "secret").stat().st_mtime > 1
        assert self.victim.poll() is None
        for listener in (self.tcp, self.abstract, self.by_path):
            listener.setblocking(False)
            with pytest.raises(BlockingIOError):
                listener.recv(1) if listener is self.abstract else listener.accept()
        for place in ("/tmp", "/var/tmp"):
            assert not os.path.exists(f"{place}/sandbox-was-here")


def _indented(attack: str) -> str:
    return textwrap.indent(textwrap.dedent(attack).strip(), "    ")


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    os.environ["SANDBOX_TEST"] = SECRET
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        folder = Path(name)
        folder.chmod(0o777)
        (folder / "secret").write_text(SECRET)
        (folder / "secret").chmod(0o644)
        with (
            socket.create_server(("127.0.0.1", 0)) as tcp,
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract,
            socket.socket(socket.AF_UNIX) as by_path,
            subprocess.Popen(["sleep", "600"]) as victim,
        ):
            abstract.bind(f"\0sandbox-test-{os.getpid()}")
            by_path.bind(str(folder / "socket"))
            by_path.listen()
            (folder / "socket").chmod(0o777)
            host = Host(folder, victim, tcp, abstract, by_path)
            yield host
            host.check()
            victim.kill()
    del os.environ["SANDBOX_TEST"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_attack_fails(sandbox: Sandbox, host: Host, attack: str) -> None:
    result = sandbox.run(host.program(ATTACKS[attack]), stdin=b"input", limits=LIMITS)
    said = result.stdout + result.stderr
    assert b"BROKE" not in said, said
    assert SECRET.encode() not in said + result.result
    assert b"blocked" in said or result.signal is not None or result.exit_code, (attack, result)


def test_attacks_leave_the_host_alone(host: Host) -> None:
    host.check()


@pytest.mark.parametrize("attack", ["reading: passwd", "writing: beside the planted file", "talking: UDP"])
def test_attacks_work_without_a_jail(host: Host, attack: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        program = host.program(ATTACKS[attack])
        ran = subprocess.run([sys.executable, "-c", program], capture_output=True, cwd=folder, timeout=60, check=False)
    assert b"BROKE" in ran.stdout, ran
    (host.folder / "secret.new").unlink(missing_ok=True)
