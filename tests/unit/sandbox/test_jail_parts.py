"""Parts of the jail on their own."""

from __future__ import annotations

import errno
import fcntl
import importlib
import os
import select
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from roll_core.sandbox import Ending, Limits, Sandbox
from roll_core.sandbox import paths as paths_module
from roll_core.sandbox.kernel import landlock
from roll_core.sandbox.memfds import MemoryFile
from roll_core.sandbox.outcome import RunFiles, result_of
from roll_core.sandbox.paths import readable_paths
from roll_core.sandbox.wire import RunReport, RunRequest, decode, encode
from roll_core.sandbox.zygote import identity
from roll_core.sandbox.zygote.child import READY
from roll_core.sandbox.zygote.loop import Loop, _Job
from roll_core.sandbox.zygote.memory_modules import MemoryModules
from roll_core.sandbox.zygote.usage import Proc
from roll_core.sandbox.zygote.watch import MAX_STRETCH, Watched

REQUEST = RunRequest(
    run=1, cpu_s=1.0, wall_s=2.0, memory_mb=10, processes=4, disk_mb=1, file_bytes=1 << 20, has_peer=False
)


class FakeProc:
    """A /proc that tells what a test wants."""

    def __init__(self) -> None:
        self.resident: dict[int, int] = {7: 0}
        self.proportional = 0
        self.waited = 0.0
        self.waited_by_children = 0.0
        self.cpu = 0.0

    def host_pid(self, pidfd: int) -> int:
        return 7

    def family(self, pid: int) -> list[int]:
        return list(self.resident)

    def resident_bytes(self, pid: int) -> int:
        return self.resident[pid]

    def proportional_bytes(self, pid: int) -> int:
        return self.proportional

    def family_cpu_seconds(self, family: list[int]) -> float:
        return self.cpu

    def waiting_seconds(self, pid: int) -> float:
        return self.waited if pid == 7 else self.waited_by_children


def watched(proc: FakeProc, *, allow_processes: bool = False) -> Watched:
    config = SimpleNamespace(allow_processes=allow_processes)
    prepared = SimpleNamespace(proc=proc, config=config, resident=5 << 20)
    return Watched(prepared, REQUEST, pid=2**22 + 1, pidfd=-1, began=100.0)


def test_the_wall_clock_is_stretched_by_time_spent_waiting_for_a_processor() -> None:
    proc = FakeProc()
    watch = watched(proc)
    assert watch.exceeded(101.9) is None
    proc.waited = 3.0
    assert watch.exceeded(104.9) is None
    assert watch.exceeded(105.1) == "wall"
    proc.waited = 1e6
    assert watch.exceeded(100.0 + 2.0 * MAX_STRETCH - 0.1) is None
    assert watch.exceeded(100.0 + 2.0 * MAX_STRETCH + 0.1) == "wall"


def test_the_wall_clock_is_stretched_by_time_that_children_spent_waiting() -> None:
    proc = FakeProc()
    proc.resident = {7: 0, 8: 0}
    proc.waited_by_children = 3.0
    assert watched(proc, allow_processes=True).exceeded(104.9) is None
    assert watched(proc, allow_processes=True).exceeded(105.1) == "wall"


def test_memory_is_that_of_the_program_without_the_zygotes() -> None:
    proc = FakeProc()
    watch = watched(proc)
    proc.resident[7] = 15 << 20
    assert watch.exceeded(100.1) is None
    proc.resident[7] += 1024
    assert watch.exceeded(100.2) == "memory"
    assert watch.memory_kb == 15 * 1024 + 1
    assert watch.peaked(15 * 1024 + 1)
    assert not watch.peaked(15 * 1024)


def test_shared_memory_of_a_family_counts_once() -> None:
    proc = FakeProc()
    watch = watched(proc, allow_processes=True)
    proc.resident = {7: 12 << 20, 8: 12 << 20}
    proc.proportional = 7 << 20
    assert watch.exceeded(100.1) is None
    proc.proportional = 8 << 20
    assert watch.exceeded(100.2) == "memory"


def test_cpu_time_of_a_family_is_added_up() -> None:
    proc = FakeProc()
    watch = watched(proc, allow_processes=True)
    proc.resident = {7: 0, 8: 0}
    proc.cpu = 1.1
    assert watch.exceeded(100.1) == "cpu"


class Unwatchable:
    """A run that cannot be watched."""

    began = 0.0
    cpu_s = 0.0
    memory_kb = 0

    def exceeded(self, now: float) -> None:
        raise ValueError("no such number")

    def peaked(self, memory_kb: int) -> bool:
        return False


def test_a_run_that_cannot_be_watched_ends_alone() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        loop = Loop(theirs, SimpleNamespace(run_uids=None, guards=()))
        for run, watch in ((1, Unwatchable()), (2, watched(FakeProc()))):
            pid = os.posix_spawn("/bin/sleep", ["sleep", "60"], {})
            readable, writable = os.pipe()
            os.write(writable, READY)
            os.close(writable)
            job = _Job(replace(REQUEST, run=run), pid, os.pidfd_open(pid), readable, None, watch)
            watch.began = time.monotonic()
            loop._jobs[job.pidfd] = job
            loop._poll.register(job.pidfd, select.POLLIN)
        loop._enforce()
        loop._enforce()
        first, second = loop._jobs.values()
        loop._finish(first)
        report = decode(ours.recv(1 << 16))
        assert (report["run"], report["failure"]) == (1, "cannot watch the run: ValueError: no such number")
        assert os.waitpid(second.pid, os.WNOHANG) == (0, 0)
        loop._stop(second, "killed")
        loop._finish(second)
        report = decode(ours.recv(1 << 16))
    assert (report["run"], report["failure"], report["stopped"]) == (2, None, "killed")


def test_proc_tells_about_this_process() -> None:
    proc = Proc(os.open("/proc", os.O_PATH | os.O_DIRECTORY))
    with subprocess.Popen(["sleep", "60"]) as child:
        pidfd = os.pidfd_open(child.pid)
        try:
            assert proc.host_pid(pidfd) == child.pid
            assert child.pid in proc.family(os.getpid())
            assert proc.resident_bytes(child.pid) > 0
            assert 0 < proc.proportional_bytes(child.pid) <= proc.resident_bytes(child.pid)
            assert proc.waiting_seconds(child.pid) >= 0
        finally:
            child.kill()
            child.wait()
            gone = proc.host_pid(pidfd), proc.resident_bytes(child.pid), proc.family(child.pid)
            os.close(pidfd)
    assert gone == (None, 0, [child.pid])
    assert proc.address_space_bytes() > proc.resident_bytes("self") > 1 << 20
    assert proc.threads_of(os.getuid()) >= 1
    assert proc.family_cpu_seconds([os.getpid()]) > 0
    os.close(proc.fd)


def test_inputs_cannot_be_changed() -> None:
    file = MemoryFile.of_input("in", b"abc")
    with pytest.raises(PermissionError):
        os.write(file.fd, b"x")
    with pytest.raises(PermissionError):
        os.ftruncate(file.fd, 0)
    with pytest.raises(PermissionError):
        fcntl.fcntl(file.fd, 1033, 8)
    assert os.read(file.fd, 10) == b"abc"
    file.close()
    file.close()


def test_outputs_have_an_end() -> None:
    file = MemoryFile.for_output("out", 10)
    assert os.write(file.fd, b"x" * 10) == 10
    assert (file.written(), file.read(10)) == (10, b"x" * 10)
    with pytest.raises(PermissionError):
        while True:
            os.write(file.fd, b"x" * (1 << 20))
    assert file.written() > 10
    assert file.read(4) == b"xxxx"
    with pytest.raises(PermissionError):
        os.ftruncate(file.fd, 1 << 30)
    file.close()


@pytest.mark.parametrize(
    ("status", "stderr", "ending"),
    [
        (0, b"MemoryError", Ending.EXITED),
        (1 << 8, b"Traceback\nMemoryError\n", Ending.MEMORY),
        (1 << 8, b"MemoryError: no room\n", Ending.MEMORY),
        (1 << 8, b"OSError: [Errno 12] Cannot allocate memory\n", Ending.MEMORY),
        (1 << 8, b"OSError: [Errno 28] No space left on device: 'x'", Ending.DISK),
        (1 << 8, b"OSError: [Errno 27] File too large", Ending.DISK),
        (1 << 8, b"ValueError: MemoryError\n", Ending.EXITED),
        (1 << 8, b"", Ending.EXITED),
        (9, b"", Ending.SIGNALLED),
        (11, b"MemoryError", Ending.SIGNALLED),
    ],
)
def test_last_words_tell_endings_apart(status: int, stderr: bytes, ending: Ending) -> None:
    limits = Limits(output_kb=1)
    files = RunFiles(b"", b"", limits)
    os.write(files.stderr.fd, stderr)
    report = RunReport(run=1, failure=None, stopped=None, status=status, cpu_s=0.0, wall_s=0.0, memory_kb=1024)
    result = result_of("ns", report, files, limits)
    files.close()
    assert (result.ending, result.memory_mb, result.stderr) == (ending, 1.0, stderr)


def test_the_kernels_own_cpu_limit_is_a_cpu_ending() -> None:
    limits = Limits(cpu_s=1.0)
    files = RunFiles(b"", b"", limits)
    report = RunReport(run=1, failure=None, stopped=None, status=9, cpu_s=2.1, wall_s=2.2, memory_kb=1)
    assert result_of("ns", report, files, limits).ending is Ending.CPU
    files.close()


@pytest.mark.parametrize(
    "wrong",
    [
        *({"cpu_s": 0}, {"cpu_s": -1.0}, {"cpu_s": float("nan")}, {"cpu_s": float("inf")}, {"wall_s": 0}),
        *({"memory_mb": 0}, {"output_kb": -1}, {"processes": 0}, {"disk_mb": -1}, {"memory_mb": 1 << 40}),
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"the limit {next(iter(wrong))} of a run"):
        Limits(**wrong)


def test_the_smallest_limits_work(sandbox: Sandbox) -> None:
    result = sandbox.run("print(1)", limits=Limits(output_kb=0, disk_mb=0, memory_mb=1, processes=1))
    assert result.ending is Ending.OUTPUT
    fill = "open('x', 'wb').write(bytes(1 << 20))"
    result = sandbox.run(fill, limits=Limits(disk_mb=0))
    assert result.exit_code == 1, result


def test_messages_cross_the_wire() -> None:
    assert RunRequest(**decode(encode(REQUEST))) == REQUEST


def test_paths_below_others_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "c").symlink_to(tmp_path / "a")
    kept = paths_module._without_nested([f"{tmp_path}/a/b", f"{tmp_path}/a", f"{tmp_path}/c/b", f"{tmp_path}/c"])
    assert sorted(kept) == [f"{tmp_path}/a", f"{tmp_path}/c", f"{tmp_path}/c/b"]


def test_another_interpreter_is_asked_for_its_library() -> None:
    link = os.path.realpath(sys.executable)
    readable = readable_paths(link, [], allow_processes=True)
    assert any(os.path.dirname(os.__file__).startswith(path) for path in readable)


def test_modules_are_loaded_from_memory(tmp_path: Path) -> None:
    package = tmp_path / "memory_package"
    package.mkdir()
    (package / "__init__.py").write_text("from memory_package.part import x\n")
    (package / "part.py").write_text("x = 42\n")
    (package / "broken.py").write_text("x = = 1\n")
    modules = MemoryModules()
    modules.add_folder(str(package), "memory_package")
    (package / "part.py").unlink()
    sys.meta_path.append(modules)
    try:
        module = importlib.import_module("memory_package")
        assert (module.x, module.__path__, module.__spec__.origin) == (42, [str(package)], f"{package}/__init__.py")
        with pytest.raises(SyntaxError):
            importlib.import_module("memory_package.broken")
        assert modules.find_spec("memory_package.other", None) is None
    finally:
        sys.meta_path.remove(modules)
        for name in [name for name in sys.modules if name.partition(".")[0] == "memory_package"]:
            del sys.modules[name]


def test_stale_bytecode_is_not_used(tmp_path: Path) -> None:
    source = tmp_path / "changing.py"
    source.write_text("x = 1\n")
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(tmp_path)], check=True)
    for text, expected in (("x = 1\n", True), ("x = 10\n", False)):
        source.write_text(text)
        os.utime(source, (1_700_000_000, 1_700_000_000)) if not expected else subprocess.run(
            [sys.executable, "-m", "compileall", "-q", "-f", str(tmp_path)], check=True
        )
        modules = MemoryModules()
        modules.add_folder(str(tmp_path))
        assert modules._sources["changing"].is_compiled is expected


def test_ids_of_nobody_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(identity, "_may_change_ids", lambda: True)
    for mapped, least in (([(0, 2**32 - 1)], 1_900_000_000), ([(0, 65_536)], 61_184)):
        monkeypatch.setattr(identity, "mapped_uids", lambda mapped=mapped: mapped)
        uids = identity.unprivileged_uids()
        assert uids is not None
        assert len(uids) == identity.SLOTS
        assert uids[0] >= least
        assert uids[-1] < mapped[0][1]
    monkeypatch.setattr(identity, "mapped_uids", lambda: [(0, 1)])
    assert identity.unprivileged_uids() is None
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert identity.unprivileged_uids() is None


def test_a_kernel_that_lacks_a_part_of_its_landlock_gets_less(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def old(name: str, attributes: bytes | None, size: int, flags: int) -> int:
        if flags:
            return 6
        asked.append(size)
        if size > 16:
            raise OSError(errno.EINVAL, name)
        return 99

    monkeypatch.setattr(landlock, "syscall", old)
    assert landlock.make_ruleset([], []) == 99
    assert asked == [24, 16]


HUNT = """
import gc, sys
mark = "".join(["other", "-run-", "8675309"])
found = []
def look(value):
    if value is mark: return
    text = value if isinstance(value, (str, bytes)) else ""
    text = text.decode("latin1") if isinstance(text, bytes) else text
    if mark in text: found.append(text)
seen = set()
todo = gc.get_objects()
frame = sys._getframe()
while frame: todo.append(frame.f_locals); frame = frame.f_back
for value in todo:
    try:
        for part in gc.get_referents(value): look(part)
        if isinstance(value, dict):
            for item in list(value.values()): look(item)
    except Exception: pass
print("found" if found else "nothing")
"""


def test_nothing_of_other_runs_is_in_a_programs_memory(sandbox: Sandbox) -> None:
    limits = Limits(cpu_s=10.0)
    others = [
        sandbox.start(
            {"mode": "program", "source": "x = 'other-run-8675309'\nimport time\ntime.sleep(1)"},
            stdin=b"other-run-8675309",
            limits=limits,
        )
        for _ in range(2)
    ]
    said = sandbox.run(HUNT, limits=limits)
    for other in others:
        other.kill()
        other.wait()
    assert said.stdout == b"nothing\n", said
