"""The jail's front: the strongest level that holds on this machine, programs run at it."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Self

from roll_core.sandbox.pool import Pool
from roll_core.sandbox.running import Running
from roll_core.sandbox.scratch import pack
from roll_core.sandbox.settings import DEFAULT_LIMITS, DEFAULT_PRELOAD, Settings
from roll_core.sandbox.types import LEVELS, Level, Limits, RunResult, SandboxError, SandboxUnavailableError

_NO_FILES: Mapping[str, bytes] = MappingProxyType({})


class Sandbox:
    """Runs untrusted Python programs in a jail.

    Safe from many threads. In a forked copy of the process it opens zygotes of its own on first use; pickled, it is
    opened anew from its options.
    """

    level: Level
    """The level at which programs run."""
    refused: Mapping[Level, str]
    """Why stronger levels were not taken."""

    def __init__(
        self,
        level: Level | Literal["auto"] = "auto",
        *,
        zygotes: int = 1,
        preload: Sequence[str] = DEFAULT_PRELOAD,
        packages: Sequence[str | Path] = (),
        allow_processes: bool = False,
        python: str | None = None,
    ) -> None:
        """Start zygotes at the strongest level that holds.

        Args:
            level: a level of `LEVELS`, or "auto": the strongest that withstands the attacks of the self-test. The
                environment variable `ROLL_SANDBOX_LEVEL` takes the place of "auto".
            zygotes: how many processes fork runs; each serves many runs at the same time.
            preload: modules that every program finds loaded.
            packages: more folders that programs may import from, such as a `site-packages`. Where programs see no
                files (`seccomp`, or an interpreter that only root can read) extension modules of these must be in
                `preload`, with all that they import later.
            allow_processes: let programs fork and execute (level `ns` only); CPU time and memory then count for all
                processes of a run together.
            python: the interpreter, this process's own by default.

        Raises:
            SandboxUnavailableError: no level holds; the message gives the reason for each.
            ValueError: an option that makes no sense.
        """
        folders = tuple(os.path.abspath(folder) for folder in packages)
        interpreter = python or sys.executable
        self._settings = Settings(level, zygotes, tuple(preload), folders, allow_processes, interpreter)
        self._open()

    def _open(self) -> None:
        pool, refused = open_strongest(self._settings)
        self._pool, self.level, self.refused = pool, pool.level, refused
        self._owner = os.getpid()
        self._reopening = threading.Lock()
        self._finalizer = weakref.finalize(self, pool.close)
        _OPEN.add(self)

    def start(
        self,
        job: Mapping[str, Any],
        *,
        stdin: bytes = b"",
        limits: Limits = DEFAULT_LIMITS,
        peer: socket.socket | None = None,
        files: Mapping[str, bytes] = _NO_FILES,
    ) -> Running:
        """Start a job of the harness inside.

        Args:
            job: plain data as JSON has it; `mode` says what to do with the rest.
            stdin: what the program reads.
            limits: limits of the run.
            peer: a socket that the run gets as descriptor 4; the caller closes its own copy.
            files: small files that the program finds in its scratch folder, content by relative path (level `ns` only).

        Raises:
            SandboxError: the jail failed.
            ValueError: files where programs have no scratch folder, outside it, or too large for it.
        """
        planted = pack(files, self.level, limits)
        return Running(self._current_pool(), json.dumps({**job, **planted}).encode(), stdin, limits, peer)

    def run(
        self,
        source: str,
        *,
        stdin: bytes = b"",
        limits: Limits = DEFAULT_LIMITS,
        files: Mapping[str, bytes] = _NO_FILES,
    ) -> RunResult:
        """Run a program as `python program.py < stdin` would, and wait for its end.

        Raises:
            SandboxError: the jail failed, not the program.
            ValueError: files that cannot be planted; see `start`.
        """
        return self.start({"mode": "program", "source": source}, stdin=stdin, limits=limits, files=files).wait()

    def _current_pool(self) -> Pool:
        if self._owner != os.getpid():
            with self._reopening:
                if self._owner != os.getpid():
                    self._open()
        return self._pool

    def forget_zygotes(self) -> None:
        """In a forked copy of the process: what belongs to the original is let go. Called by the fork itself."""
        self._finalizer.detach()
        self._pool.abandon()
        self._reopening = threading.Lock()

    def close(self) -> None:
        """End the zygotes and every run; a second time does nothing."""
        if self._owner == os.getpid():
            self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> Settings:
        return self._settings

    def __setstate__(self, settings: Settings) -> None:
        self._settings = settings
        self._open()


def open_strongest(settings: Settings) -> tuple[Pool, dict[Level, str]]:
    """Zygotes at the strongest level that holds, and why the stronger ones do not.

    Raises:
        SandboxUnavailableError: none holds.
    """
    refused: dict[Level, str] = {}
    for level in settings.levels():
        try:
            return Pool(settings, level), refused
        except SandboxError as error:
            refused[level] = str(error)
    reasons = "".join(f"\n  {level}: {reason}" for level, reason in refused.items())
    raise SandboxUnavailableError(f"no sandbox holds here, so no untrusted code is run:{reasons}")


def probe() -> dict[Level, str | None]:
    """Try every level on this machine: None where it holds, else why it does not."""
    found: dict[Level, str | None] = {}
    for level in LEVELS:
        try:
            Pool(Settings(level), level).close()
            found[level] = None
        except SandboxError as error:
            found[level] = str(error)
    return found


_OPEN: weakref.WeakSet[Sandbox] = weakref.WeakSet()


def _forget_all() -> None:
    for sandbox in list(_OPEN):
        sandbox.forget_zygotes()
    _OPEN.clear()


os.register_at_fork(after_in_child=_forget_all)
