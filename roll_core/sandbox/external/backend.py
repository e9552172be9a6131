"""Run any command in a jail made by an external tool."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Literal

from roll_core.sandbox.external.denied import as_bpf
from roll_core.sandbox.external.tools import GIVEN, INSTALL, TOOLS, WORK, Tool, View, bwrap, find, nsjail
from roll_core.sandbox.external.watch import OWN_PROCESSES, Exceeded, Tree
from roll_core.sandbox.memfds import MemoryFile, output_size
from roll_core.sandbox.types import Ending, Limits, RunResult, SandboxError, SandboxUnavailableError
from roll_core.sandbox.zygote.identity import unprivileged_uids
from roll_core.sandbox.zygote.usage import Proc

_STARTED = b"R"
"""What the shell in the jail writes first; without it the tool has failed, not the program."""

_SCRIPT = f"""exec 3>&0 0<{GIVEN}/stdin
if [ "$1" = writable ]; then cp -R {GIVEN}/files/. {WORK}/ || exit 125; fi
keep=$2
shift 2
printf {_STARTED.decode()} >&3
"$@" 3>&-
status=$?
if [ $status = 0 ] && [ -n "$keep" ] && [ -f "$keep" ] && [ ! -L "$keep" ]; then cat -- "$keep" >&3; fi
exit $status
"""
"""Descriptor 0 comes as the result file, which the program does not get; its own input is a file."""

_LAUNCH = """echo 1000 > /proc/self/oom_score_adj
ulimit -c 0 && ulimit -n 256 && ulimit -f "$1" && ulimit -t "$2" || exit 125
if [ -n "$3" ]; then ulimit -p "$3" 2>/dev/null || ulimit -u "$3" || exit 125; fi
shift 3
exec "$@"
"""
"""Limits of the kernel: size of files in blocks of 512 bytes, CPU seconds of one process, processes of the user.

The last only for a user of the run's own: another's processes would count, and root's are not limited at all.
"""

_SELF_TEST = """
[ -e "$1" ] && echo "see a file of the host"
kill -0 "$2" 2>/dev/null && echo "signal a process of the host"
(echo x > /usr/jail_was_here) 2>/dev/null && echo "write to /usr"
[ -e /proc/1 ] && echo "see processes"
[ -n "$ROLL_SANDBOX_SECRET$SHELL$USER" ] && echo "see the environment"
[ -e "/etc/shadow" ] && echo "see /etc"
exit 0
"""
_SELF_LIMITS = Limits(cpu_s=5.0, wall_s=20.0, memory_mb=256, output_kb=64, disk_mb=4)
_ENDINGS: dict[Exceeded, Ending] = {
    "cpu": Ending.CPU,
    "wall": Ending.WALL,
    "memory": Ending.MEMORY,
    "processes": Ending.SIGNALLED,
    "output": Ending.OUTPUT,
}

_BY_SIGNAL: dict[int, Ending] = {signal.SIGXCPU: Ending.CPU, signal.SIGXFSZ: Ending.DISK}


class ExternalSandbox:
    """Runs commands in jails of `bwrap` or `nsjail`: no network, no host files but programs and libraries, no /proc.

    CPU time, memory and number of processes count for all processes of a run together; the host reads them and kills.
    Safe from many threads. A host that is root runs the tool as a user that nobody has, where it can.
    """

    tool: Tool
    """The tool in use."""

    def __init__(
        self, tool: Literal["auto", "bwrap", "nsjail"] = "auto", *, read_only: Sequence[str | Path] = ()
    ) -> None:
        """Find a tool and attack its jail.

        Args:
            tool: which one; "auto" takes the first of `TOOLS` that is installed and holds.
            read_only: more files and folders that programs see, such as that of an interpreter outside /usr.

        Raises:
            SandboxUnavailableError: none is installed, or none holds; the message gives the reason for each.
        """
        self._proc_fd = os.open("/proc", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._finalizer = weakref.finalize(self, os.close, self._proc_fd)
        if not Proc(self._proc_fd).tells_children():
            raise SandboxUnavailableError("this kernel does not tell the children of processes, which the limits need")
        self._read_only = tuple(os.path.abspath(path) for path in read_only)
        refused = []
        for name in TOOLS if tool == "auto" else (tool,):
            try:
                self._open(name)
            except SandboxError as error:
                refused.append(f"{name}: {error}")
            else:
                return
        known = " or ".join(INSTALL.values())
        raise SandboxUnavailableError("no external sandbox: " + "; ".join(refused) + f" (a tool comes with {known})")

    def _open(self, tool: Tool) -> None:
        self.tool = tool
        self._binary = find(tool)
        users = unprivileged_uids()
        choices = [itertools.cycle(users)] if users else []
        failures = []
        for choice in (*choices, itertools.repeat(None)):
            self._users = choice
            try:
                self._attack()
            except SandboxError as error:
                failures.append(str(error))
            else:
                return
        raise SandboxUnavailableError("; ".join(dict.fromkeys(failures)))

    def _attack(self) -> None:
        """Try to get out of a jail with what a shell can do.

        Raises:
            SandboxError: something worked, or the jail does not start.
        """
        with tempfile.NamedTemporaryFile() as secret:
            os.chmod(secret.name, 0o644)
            command = ["sh", "-c", _SELF_TEST, "sh", secret.name, str(os.getpid())]
            result = self.run(command, limits=_SELF_LIMITS, writable=True)
        if not result.is_clean:
            raise SandboxError(
                f"the self-test ended with {result.ending}, status {result.exit_code}: {result.stderr!r}"
            )
        if result.stdout:
            raise SandboxError(f"the self-test broke out: it could {', '.join(result.stdout.decode().splitlines())}")

    def run(
        self,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        stdin: bytes = b"",
        limits: Limits = Limits(),  # noqa: B008  immutable
        writable: bool = False,
        keep: str = "",
    ) -> RunResult:
        """Run a command and wait for its end; nothing of it is alive then.

        Args:
            argv: the command; it starts in a folder that holds `files`.
            files: content by relative path; all are readable and executable.
            stdin: what the program reads.
            limits: limits of all processes of the run together.
            writable: let it write in its folder, which is in memory and gone afterwards.
            keep: a file of its folder to return as `RunResult.result` when the command ends with status 0.

        Raises:
            SandboxError: the tool failed, not the program.
            ValueError: a path that is not relative and plain.
        """
        with tempfile.TemporaryDirectory(prefix="roll-jail-") as folder:
            given = Path(folder)
            _lay_out(given, files or {}, stdin)
            view = View(given, writable, self._read_only)
            return self._run([*argv], view, limits, keep)

    def _run(self, argv: list[str], view: View, limits: Limits, keep: str) -> RunResult:
        output = limits.output_kb << 10
        result_bytes = (limits.disk_mb << 20) + len(_STARTED)
        result, stdout, stderr = (
            MemoryFile.for_output(name, size)
            for name, size in (("result", result_bytes), ("stdout", output), ("stderr", output))
        )
        filter_file = MemoryFile.of_input("filter", as_bpf())
        largest = output_size(max(output, result_bytes))
        if self.tool == "bwrap":
            command = bwrap(self._binary, view, limits, filter_file.fd)
        else:
            command = nsjail(self._binary, view, limits)
        command += ["/bin/sh", "-c", _SCRIPT, "sh", "writable" if view.writable else "fixed", keep, *argv]
        try:
            tree = self._start(command, limits, largest, (result, stdout, stderr, filter_file))
            exceeded = tree.watch(limits, lambda: stdout.written() > output or stderr.written() > output)
            return _result_of(self.tool, tree, exceeded, limits, (result, stdout, stderr))
        finally:
            for file in (result, stdout, stderr, filter_file):
                file.close()

    def _start(self, command: list[str], limits: Limits, largest: int, files: Sequence[MemoryFile]) -> Tree:
        result, stdout, stderr, filter_file = files
        user = next(self._users)
        processes = "" if user is None else str(limits.processes + OWN_PROCESSES)
        launch = ["/bin/sh", "-c", _LAUNCH, "sh", str(-(-largest // 512)), str(int(limits.cpu_s) + 2), processes]
        try:
            tool = subprocess.Popen(  # noqa: S603  the command line is made here
                [*launch, *command],
                stdin=result.fd,
                stdout=stdout.fd,
                stderr=stderr.fd,
                pass_fds=(filter_file.fd,),
                env={},  # the first process of the namespace keeps what it is started with
                cwd="/",
                start_new_session=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        except OSError as error:
            raise SandboxError(f"{self.tool} cannot be started: {error}") from error
        return Tree(tool, self._proc_fd)


def _lay_out(given: Path, files: Mapping[str, bytes], stdin: bytes) -> None:
    """Write a run's input where the jail will see it, readable for any user."""
    folder = given / "files"
    folder.mkdir()
    for name, content in files.items():
        path = PurePosixPath(name)
        if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
            raise ValueError(f"a file of a run needs a relative path without '..', not {name!r}")
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (given / "stdin").write_bytes(stdin)
    for path_inside in (given, *given.rglob("*")):
        path_inside.chmod(0o755)


def _result_of(
    tool: Tool, tree: Tree, exceeded: Exceeded | None, limits: Limits, files: Sequence[MemoryFile]
) -> RunResult:
    """What became of a run whose processes are all gone.

    Raises:
        SandboxError: the program was never started.
    """
    result, stdout, stderr = files
    cap = limits.output_kb << 10
    errors = stderr.read(cap)
    kept = result.read((limits.disk_mb << 20) + len(_STARTED))
    if not kept.startswith(_STARTED) and exceeded is None:
        raise SandboxError(
            f"{tool} made no jail (status {tree.status}): {errors.decode('utf-8', 'replace').strip()[-500:]}"
        )
    code = tree.status if exceeded is None and tree.status >= 0 else None
    by_signal = signal.SIGKILL if code is None else code - 128 if 128 < code < 128 + signal.NSIG else None
    if stdout.written() > cap or stderr.written() > cap:
        ending = Ending.OUTPUT
    elif exceeded is not None:
        ending = _ENDINGS[exceeded]
    elif by_signal is not None:
        ending = _BY_SIGNAL.get(by_signal, Ending.SIGNALLED)
    else:
        ending = Ending.EXITED
    return RunResult(
        level=tool,
        ending=ending,
        exit_code=None if by_signal is not None else code,
        signal=by_signal,
        stdout=stdout.read(cap),
        stderr=errors,
        result=kept.removeprefix(_STARTED),
        cpu_s=tree.cpu_s,
        wall_s=tree.wall_s,
        memory_mb=tree.memory_bytes / (1 << 20),
    )
