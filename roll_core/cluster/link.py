"""The driver's end of one worker: what a group asks of it, wherever the process is."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from roll_core.cluster.proof import PluginChoice, Proof
from roll_core.cluster.reference import Packed, Parts
from roll_core.cluster.servant import Order

STACK_S = 2.0
"""How long a stuck worker is given to write its stacks."""
_PLUMBING = "/roll_core/cluster/servant.py"
_IDLE = ("<no Python frame>", "/ray/_private/", "concurrent/futures/thread.py")
"""Threads with such a frame only wait for work of Ray's or of an executor's."""
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x([0-9a-f]+)")


@dataclass(frozen=True, slots=True)
class Boot:
    """What a fresh process is told first."""

    role: str
    index: int
    log: str
    """File that takes what it prints."""
    trace: str
    """File that takes its stacks."""
    plugins: PluginChoice | None
    path: tuple[str, ...]
    """Where the driver finds modules."""


@dataclass(frozen=True, slots=True)
class Greeting:
    """What it answers."""

    pid: int
    node: str
    """Name of its machine for people."""
    address: str
    """Address others reach it at."""
    port: int
    """A port that was free there, for the rendezvous of a process group."""
    worker_thread: int
    own_threads: tuple[int, ...]
    """Threads that only carry messages; left out of stacks."""
    proof: Proof
    devices: tuple[str, ...] = ()
    """Devices it may use, as `CUDA_VISIBLE_DEVICES` names them."""


@dataclass(frozen=True, slots=True)
class Message:
    """One order as it is sent."""

    number: int
    order: Order
    method: str
    packed: Packed
    stage: str
    """Under what its bytes are counted."""
    is_waited: bool
    """Whether the caller waits for the answer, so that its arrays stay as they are meanwhile."""


class Link(Protocol):
    """One worker process. A link that has lost its process stays lost; a new process gets a new link."""

    ready: Future[Greeting]
    """Fails with `WorkerLost`. Cannot be cancelled."""
    environment: Mapping[str, str]
    """Environment variables to set before the object is built, beside those the process started with."""

    def send(self, message: Message) -> Future[Parts]:
        """Send an order; never blocks. The future holds the packed reply, or fails with `WorkerLost`."""
        ...

    def cancel(self, number: int) -> None:
        """Ask the worker to give up an order."""
        ...

    def stacks(self) -> str:
        """Stacks of its threads and coroutines, within about `STACK_S` seconds; empty when it cannot be asked."""
        ...

    def is_alive(self) -> bool:
        """Whether the process is there."""
        ...

    def rss(self) -> int | None:
        """Resident bytes; None when nobody can tell."""
        ...

    def kill(self) -> None:
        """End the process and its children at once."""
        ...


def arrange_stacks(dump: str, greeting: Greeting | None) -> str:
    """A `faulthandler` dump with the worker's own thread first and the message threads left out."""
    if greeting is None:
        return dump
    sections: list[tuple[int, list[str]]] = []
    for line in dump.splitlines():
        match = _THREAD.match(line)
        if match:
            sections.append((int(match.group(1), 16), []))
        elif sections and line.strip():
            sections[-1][1].append(line.strip())
    lines: list[str] = []
    for thread, frames in sorted(sections, key=lambda section: section[0] != greeting.worker_thread):
        if thread == greeting.worker_thread:
            own = itertools.takewhile(lambda frame: _PLUMBING not in frame, frames)
            lines += ["worker thread (most recent call first):", *(f"  {frame}" for frame in own)]
        elif thread not in greeting.own_threads and not any(idle in frame for idle in _IDLE for frame in frames):
            lines += [f"thread {thread:#x} (most recent call first):", *(f"  {frame}" for frame in frames)]
    return "\n".join(lines)


def ranges(indices: Sequence[int]) -> str:
    """[0, 1, 2, 5] as "0..2, 5"."""
    texts: list[str] = []
    run: list[Any] = []
    for index in [*sorted(indices), None]:
        if run and (index is None or index != run[-1] + 1):
            texts.append(str(run[0]) if len(run) == 1 else f"{run[0]}..{run[-1]}")
            run = []
        run.append(index)
    return ", ".join(texts)
