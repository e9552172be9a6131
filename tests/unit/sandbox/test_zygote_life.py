"""Zygotes that die, hosts that fork or die, many runs at the same time, nothing left behind."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from roll_core.sandbox import Ending, Level, Limits, Sandbox, SandboxError, SandboxUnavailableError

LEVELS: tuple[Level, ...] = ("ns", "landlock", "seccomp")
SLEEPER = "import time\nprint('up', flush=True)\ntime.sleep(30)"
LIMITS = Limits(cpu_s=2.0, wall_s=5.0)


def fresh(level: Level, zygotes: int = 1) -> Sandbox:
    try:
        return Sandbox(level, zygotes=zygotes)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


@pytest.fixture(params=LEVELS, scope="module")
def own(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Its zygotes are killed by some tests; the next run that comes to it starts others."""
    with fresh(request.param) as sandbox:
        yield sandbox


def children_of(pid: int) -> list[int]:
    found = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        with contextlib.suppress(FileNotFoundError):
            found += [int(child) for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return found


def family_of(pid: int) -> list[int]:
    found = children_of(pid)
    for child in list(found):
        with contextlib.suppress(FileNotFoundError):
            found += family_of(child)
    return found


def zygotes_of(pid: int) -> list[int]:
    return [child for child in children_of(pid) if "roll_core.sandbox.zygote" in command_of(child)]


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def is_alive(pid: int) -> bool:
    """Not gone, and no orphan that is dead and waits for the system's first process, which may take a second."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def kill_zygotes(sandbox: Sandbox) -> None:
    for slot in sandbox._pool._slots:
        if slot.channel is not None:
            slot.channel._process.kill()


def test_a_dead_zygote_is_replaced(own: Sandbox) -> None:
    kill_zygotes(own)
    assert own.run("print(1)").stdout == b"1\n"
    assert own.run("print(2)").stdout == b"2\n"


def test_a_run_whose_zygote_dies_is_repeated(own: Sandbox) -> None:
    running = own.start({"mode": "program", "source": "import time\ntime.sleep(0.5)\nprint(3)"}, limits=LIMITS)
    time.sleep(0.1)
    kill_zygotes(own)
    assert running.wait().stdout == b"3\n"
    assert running.wait() is running.wait()


def test_a_run_that_its_dying_zygote_does_not_take_is_repeated(own: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(packet: bytes, fds: list[int]) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(own._pool.shared(), "_send_with_fds", refuse)
    assert own.run("print(3)").stdout == b"3\n"


def test_a_run_whose_zygotes_keep_dying_is_an_error(own: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    private = own._pool.private

    def doomed() -> object:
        channel = private()
        threading.Timer(0.2, channel._process.kill).start()
        return channel

    monkeypatch.setattr(own._pool, "private", doomed)
    running = own.start({"mode": "program", "source": SLEEPER}, limits=LIMITS)
    time.sleep(0.1)
    kill_zygotes(own)
    with pytest.raises(SandboxError, match=r"the jail failed: .* died"):
        running.wait()
    with pytest.raises(SandboxError, match="the jail failed"):
        running.wait()


def test_a_run_with_a_peer_is_not_repeated(own: Sandbox) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        source = "import socket\ns = socket.socket(fileno=4)\ns.recv(1)"
        running = own.start({"mode": "program", "source": source}, limits=LIMITS, peer=theirs)
        with contextlib.suppress(SandboxError):  # the harness refuses a peer in this mode; the machinery must not
            running.wait()
        running = own.start({"mode": "serve", "source": SLEEPER}, limits=LIMITS, peer=theirs)
        time.sleep(0.1)
        kill_zygotes(own)
        with pytest.raises(SandboxError, match="died during the run"):
            running.wait()


def test_the_caller_can_kill_a_run(own: Sandbox) -> None:
    running = own.start({"mode": "program", "source": SLEEPER}, limits=LIMITS)
    time.sleep(0.2)
    running.kill()
    result = running.wait()
    assert (result.ending, result.stdout) == (Ending.KILLED, b"up\n")
    running.kill()
    assert own.run("print(1)").is_clean


def test_many_runs_at_the_same_time_do_not_mix(own: Sandbox) -> None:
    def run(number: int) -> bool:
        source = f"import time\nprint(input(), {number})\ntime.sleep(0.01)"
        return own.run(source, stdin=b"%d\n" % -number).stdout == b"%d %d\n" % (-number, number)

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(run, range(80)))


def test_runs_leave_nothing_behind(own: Sandbox) -> None:
    def state() -> tuple[int, int, int]:
        zygote = (family_of(own._pool._slots[0].channel._process.pid) or [own._pool._slots[0].channel._process.pid])[-1]
        resident = int(Path(f"/proc/{zygote}/statm").read_text().split()[1]) // 256
        mounts = len(Path(f"/proc/{zygote}/mounts").read_text().splitlines())
        return len(os.listdir(f"/proc/{zygote}/fd")), mounts, resident

    def batch(count: int) -> None:
        with ThreadPoolExecutor(4) as threads:
            assert all(r.is_clean for r in threads.map(lambda _: own.run("x = 1"), range(count)))

    batch(20)
    before, ours = state(), len(os.listdir("/proc/self/fd"))
    batch(150)
    after = state()
    assert after[:2] == before[:2]
    assert after[2] - before[2] <= 2
    assert len(os.listdir("/proc/self/fd")) <= ours + 1


@pytest.mark.parametrize("level", LEVELS)
def test_a_closed_sandbox_refuses_and_leaves_no_process(level: Level) -> None:
    own = fresh(level)
    process = own._pool._slots[0].channel._process
    everyone = [process.pid, *family_of(process.pid)]
    running = own.start({"mode": "program", "source": SLEEPER}, limits=LIMITS)
    time.sleep(0.1)
    everyone += family_of(process.pid)
    own.close()
    own.close()
    assert wait_until(lambda: not any(map(is_alive, everyone)))
    with pytest.raises(SandboxError):
        running.wait()
    with pytest.raises(SandboxError, match="closed"):
        own.run("print(1)")


def test_a_dropped_sandbox_is_closed() -> None:
    sandbox = fresh("seccomp")
    pid = sandbox._pool._slots[0].channel._process.pid
    assert os.path.exists(f"/proc/{pid}")
    del sandbox
    assert wait_until(lambda: not os.path.exists(f"/proc/{pid}"))


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_outlives_a_killed_host(level: Level, open_level: Callable[[Level], Sandbox]) -> None:
    open_level(level)
    script = (
        "import sys, time\nfrom roll_core.sandbox import Sandbox, Limits\n"
        f"s = Sandbox({level!r})\n"
        f"r = [s.start({{'mode': 'program', 'source': {SLEEPER!r}}}, limits=Limits(wall_s=60)) for _ in range(3)]\n"
        "time.sleep(0.3)\nprint('ready', flush=True)\ntime.sleep(60)\n"
    )
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE)
    with host:
        assert host.stdout is not None
        assert host.stdout.readline() == b"ready\n"
        family = family_of(host.pid)
        assert len(family) >= 4
        host.send_signal(signal.SIGKILL)
    assert wait_until(lambda: not any(map(is_alive, family))), family


def test_a_forked_host_gets_zygotes_of_its_own(own: Sandbox) -> None:
    assert own.run("print(1)").is_clean
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with own:
                said = own.run("print('from the copy')").stdout
            os.write(writable, said)
        finally:
            os._exit(0)
    os.close(writable)
    os.waitpid(pid, 0)
    with os.fdopen(readable, "rb") as pipe:
        assert pipe.read() == b"from the copy\n"
    assert own.run("print(2)").stdout == b"2\n"


def test_a_run_of_another_process_cannot_be_waited_for(own: Sandbox) -> None:
    running = own.start({"mode": "program", "source": "print(1)"})
    running._owner -= 1
    with pytest.raises(SandboxError, match="another process"):
        running.wait()
    running._owner += 1
    assert running.wait().is_clean


def test_an_interrupted_wait_kills_the_run(own: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    running = own.start({"mode": "program", "source": SLEEPER}, limits=Limits(wall_s=60.0))
    future = running._future
    with monkeypatch.context() as patch:
        patch.setattr(future, "result", interrupt)
        with pytest.raises(KeyboardInterrupt):
            running.wait()
    assert future.result(10).stopped == "killed"
    with pytest.raises(SandboxError, match="interrupted"):
        running.wait()


def test_a_pickled_sandbox_opens_again(own: Sandbox) -> None:
    with pickle.loads(pickle.dumps(own)) as copy:
        assert copy.level == own.level
        assert copy.run("print(4)").stdout == b"4\n"


def test_programs_die_before_the_host_when_memory_ends(own: Sandbox) -> None:
    running = own.start({"mode": "program", "source": SLEEPER}, limits=LIMITS)
    time.sleep(0.3)
    zygote = own._pool._slots[0].channel._process.pid
    scores = {int(Path(f"/proc/{pid}/oom_score_adj").read_text()) for pid in [zygote, *family_of(zygote)]}
    running.kill()
    running.wait()
    assert max(scores) == 1000
    assert min(scores) == int(Path("/proc/self/oom_score_adj").read_text())
