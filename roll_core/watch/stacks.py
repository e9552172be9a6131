"""Where the threads and the asyncio tasks of this process are."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Collection
from types import FrameType
from typing import Any

_IDLE = ("concurrent/futures/thread.py", "/ray/_private/")
"""A thread whose innermost frame is there waits for work."""
_SHOWN = 40
"""Different task stacks that are written out."""


def thread_stacks(skipped: Collection[int] = ()) -> str:
    """Stacks of all threads with their names, the main thread first, those that wait for work left out.

    Args:
        skipped: identifiers of threads to leave out.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    main = threading.main_thread().ident
    parts, idle = [], 0
    for ident, frame in sorted(sys._current_frames().items(), key=lambda item: item[0] != main):
        if ident in skipped:
            continue
        if ident != main and any(place in frame.f_code.co_filename for place in _IDLE):
            idle += 1
            continue
        name = names.get(ident) or "not started by Python"
        parts.append(f"thread {ident:#x} ({name}), most recent call last:\n{_lines(traceback.format_stack(frame))}")
    if idle:
        parts.append(f"{idle} further threads wait for work")
    return "\n\n".join(parts)


def task_stacks(loop: asyncio.AbstractEventLoop | None) -> str:
    """What every unfinished task of a loop awaits, down to the innermost frame; equal ones together.

    Safe from another thread as far as that goes: a task that moves meanwhile may show half of each.

    Args:
        loop: the loop; None gives nothing.
    """
    if loop is None or loop.is_closed():
        return ""
    groups: Counter[str] = Counter()
    names: dict[str, str] = {}
    for task in asyncio.all_tasks(loop):
        stack = await_stack(task.get_coro())
        groups[stack] += 1
        names.setdefault(stack, task.get_name())
    parts = []
    for stack, count in groups.most_common(_SHOWN):
        head = f"task {names[stack]}" if count == 1 else f"{count} tasks like {names[stack]}"
        parts.append(f"{head}, most recent await last:\n{stack}")
    if len(groups) > _SHOWN:
        parts.append(f"{len(groups) - _SHOWN} further stacks of tasks are left out")
    return "\n\n".join(parts)


def await_stack(coroutine: Any) -> str:
    """The frames of a suspended coroutine and of everything it awaits."""
    frames: list[str] = []
    inner: Any = coroutine
    while inner is not None:
        frame, following = _frame_of(inner)
        if frame is None:
            frames.append(f"awaits a {type(inner).__name__}\n")
        else:
            frames += traceback.format_stack(frame, limit=1)
        inner = following
    return _lines(frames) or "  (not begun)"


def _frame_of(awaited: Any) -> tuple[FrameType | None, Any]:
    """The frame of a coroutine or generator, and what it awaits."""
    for frame, following in (("cr_frame", "cr_await"), ("gi_frame", "gi_yieldfrom"), ("ag_frame", "ag_await")):
        if hasattr(awaited, frame):
            return getattr(awaited, frame), getattr(awaited, following)
    return None, None


def _lines(parts: list[str]) -> str:
    return "\n".join(f"  {line}" for part in parts for line in part.rstrip().splitlines())
