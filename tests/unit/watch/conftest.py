"""What hangs in these tests, and what lets it go."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from roll_core.watch import Watch, read_status


class Exits:
    """Stands for `os._exit`: remembers the status and what the run says of itself, and releases whatever hangs."""

    def __init__(self, folder: Path) -> None:
        self.codes: list[int] = []
        self.states: list[str] = []
        self.happened = threading.Event()
        self._folder = folder

    def __call__(self, code: int) -> None:
        self.codes.append(code)
        self.states.append(read_status(self._folder).state)
        self.happened.set()


@pytest.fixture
def exits(tmp_path: Path) -> Iterator[Exits]:
    exits = Exits(tmp_path)
    yield exits
    exits.happened.set()


@pytest.fixture
def make(tmp_path: Path, exits: Exits) -> Callable[..., Watch]:
    """A watch over a run in the test's folder; by default a stage is over its bound at once."""

    def make_watch(folder: Path = tmp_path, *, limit_s: float = 0.05, grace_s: float = 600.0, **options: Any) -> Watch:
        return Watch(folder, limit_s=limit_s, grace_s=grace_s, end_process=exits, **{"pace_s": 0.01} | options)

    return make_watch


@pytest.fixture
def until() -> Callable[..., Any]:
    """Waits for a condition and returns what it gave."""
    return wait_until


def wait_until(condition: Callable[[], Any], seconds: float = 60.0) -> Any:
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
    return found
