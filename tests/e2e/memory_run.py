"""Trains and writes down, step by step, the memory of every process of the run: `memory_run.py CONFIG.json OUT.json`.

`LEAK_BYTES` and `LEAK_OBJECTS` in the environment make the driver lose that much a step, for a test of the test.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import roll_core as roll
from roll_core.engine import parts

COLLECTED_EVERY = 10


def anonymous_kib(pid: int) -> int:
    """Resident memory of a process that is no file's, in KiB; 0 when it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)


def descendants(pid: int) -> list[int]:
    """Processes below `pid`."""
    found: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in file.read_text().split()]
        except OSError:  # the thread has ended
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


class MemoryTracker:
    """Writes down memory after every step."""

    def __init__(self) -> None:
        self.rss: dict[str, list[int]] = {}
        self.blocks: list[int] = []
        self._kept: list[Any] = []

    def start(self, run: Any) -> None:
        pass

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if "time/step_s" not in metrics:
            return
        self._kept.append(os.urandom(int(os.environ.get("LEAK_BYTES", "0"))))
        self._kept.extend([n] for n in range(int(os.environ.get("LEAK_OBJECTS", "0"))))
        for pid in (os.getpid(), *descendants(os.getpid())):
            name = "driver" if pid == os.getpid() else str(pid)
            self.rss.setdefault(name, []).append(anonymous_kib(pid))
        if step % COLLECTED_EVERY == 0:
            gc.collect()
        if step == COLLECTED_EVERY:
            gc.freeze()  # what was imported need not be looked at again and again
        self.blocks.append(sys.getallocatedblocks())

    def log_rollouts(self, step: int, groups: Sequence[Any]) -> None:
        pass

    def finish(self, status: str) -> None:
        pass


def main(config_file: str, out_file: str) -> None:
    parts.KEPT_STEPS = COLLECTED_EVERY  # the metrics of a thousand steps are kept on purpose
    config = json.loads(Path(config_file).read_text())
    tracker = MemoryTracker()
    roll.train(**config | {"trackers": [*config["trackers"], {"use": tracker}]})
    Path(out_file).write_text(json.dumps({"rss": tracker.rss, "blocks": tracker.blocks}))


if __name__ == "__main__":
    main(*sys.argv[1:])
