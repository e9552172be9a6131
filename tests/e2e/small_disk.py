"""A disk of a few megabytes of its own, that tests fill up, empty and make read-only; and trackers that do so."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest


class SmallDisk:
    """A file system in memory, mounted at a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, leave: int) -> None:
        """Take up all room but `leave` bytes."""
        with self._filler.open("wb") as file:
            room = shutil.disk_usage(self.folder).free - leave
            file.write(b"\0" * max(room, 0))

    def empty(self) -> None:
        """Give the room back."""
        self._filler.unlink()


@contextmanager
def small_disk(folder: Path, megabytes: int = 8) -> Iterator[SmallDisk]:
    """Mount a small file system at `folder`; skips the test where that is not allowed."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system takes root and `mount`")
    folder.mkdir(parents=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def set_read_only(folder: Path, is_read_only: bool) -> None:
    """Refuse writes in a folder of a small disk from now on, or take them again."""
    ways = [["mount", "--bind", folder, folder], ["mount", "-o", "remount,bind,ro", folder]]
    for command in ways if is_read_only else [["umount", "-l", folder]]:
        subprocess.run([str(part) for part in command], check=True, capture_output=True)


class At:
    """A tracker that acts when the metrics of a step are reported, just before the step is saved."""

    def __init__(self, actions: Mapping[int, Callable[[], Any]]) -> None:
        self._actions = dict(actions)

    def start(self, run: Any) -> None:
        pass

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        action = self._actions.pop(step, None) if "time/step_s" in metrics else None
        if action is not None:
            action()

    def log_rollouts(self, step: int, groups: Sequence[Any]) -> None:
        pass

    def finish(self, status: str) -> None:
        pass
