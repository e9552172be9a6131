"""Kills processes of a run at random: workers and drivers that `status.json` names, and verifier processes."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from subprocess import Popen
from typing import Any


class Chaos:
    """Kills one process at a time, each at a random moment after a step was committed.

    Args:
        folder: of the run.
        watcher: the process that supervises it.
        seed: of every choice.
        longest_s: longest wait between a committed step and the kill.
    """

    def __init__(self, folder: Path, watcher: Popen[str], seed: int, longest_s: float = 0.5) -> None:
        self.killed: Counter[str] = Counter()
        self._folder = folder
        self._watcher = watcher
        self._random = random.Random(seed)
        self._longest_s = longest_s

    def run(self, roles: list[str]) -> None:
        """Kill one process of each of `roles`, in this order, each after one more committed step; then let it end."""
        todo, next_step = list(roles), 1
        while self._watcher.poll() is None:
            status = self._status()
            if todo and status is not None and status["step"] >= next_step:
                time.sleep(self._random.uniform(0, self._longest_s))
                if self._kill(todo[0]):
                    todo.pop(0)
                    next_step = status["step"] + 1
            time.sleep(0.02)

    def _kill(self, role: str) -> bool:
        status = self._status()
        if status is None or status["state"] != "running":
            return False
        chosen = self._processes(role, status)
        if not chosen:
            return False
        with suppress(ProcessLookupError):
            os.kill(self._random.choice(chosen), signal.SIGKILL)
            self.killed[role] += 1
            return True
        return False

    def _processes(self, role: str, status: dict[str, Any]) -> list[int]:
        if role == "driver":
            return [status["pid"]]
        workers = [w for w in status["workers"] if w["is_alive"] and w["pid"]]
        if role == "judge":  # the processes in which verifiers run, below their hosts
            hosts = {w["pid"] for w in workers if w["role"].startswith("verifiers")}
            return [pid for pid, parent in _parents().items() if parent in hosts]
        return [w["pid"] for w in workers if w["role"].startswith(role)]

    def _status(self) -> dict[str, Any] | None:
        with suppress(FileNotFoundError):
            status: dict[str, Any] = json.loads((self._folder / "status.json").read_text())
            return status
        return None


def _parents() -> dict[int, int]:
    """The parent of every process."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                found[int(folder.name)] = int(fields[1])
    return found
