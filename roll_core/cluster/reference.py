"""How values travel between driver and workers: packed once, arrays out of band, every byte counted.

A packed value is a list of buffers: a pickle (protocol 5), then the memory of its arrays, which is never copied into
the pickle. Whoever unpacks it gets arrays over the received memory, hence read-only ones; copy before writing.
"""

from __future__ import annotations

import contextvars
import copyreg
import io
import pickle
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Buffer = bytes | bytearray | memoryview
Parts = list[Buffer]

_arrived: contextvars.ContextVar[Sequence[Any]] = contextvars.ContextVar("roll_arrived_references")


@dataclass(slots=True, eq=False)
class Reference:
    """A value that was packed once. Name it anywhere in the arguments of a call; the worker sees the value.

    Made by `Executor.put`. The value is kept until `release`.
    """

    handle: Any = field(repr=False)
    """Where it is: its parts (local), or an object reference (Ray)."""
    nbytes: int
    """Packed size."""

    def release(self) -> None:
        """Give the value up; calls that were made with it still get it."""
        self.handle = None


@dataclass(slots=True, eq=False)
class Packed:
    """A value on its way: its own parts, and the references it names."""

    parts: Parts
    references: tuple[Reference, ...] = ()
    handle: Any = None
    """Where an executor keeps it while it goes to several workers; the parts are not needed any more then."""
    nbytes: int = field(init=False)
    """Size of its own parts."""

    def __post_init__(self) -> None:
        self.nbytes = size_of(self.parts)


def size_of(parts: Sequence[Buffer]) -> int:
    """Bytes of some buffers together."""
    return sum(memoryview(part).nbytes for part in parts)


def pack(value: Any) -> Packed:
    """Pack a value; the memory of contiguous arrays is referred to, not copied.

    Raises:
        TypeError, pickle.PicklingError, AttributeError: something in it cannot be pickled.
        ValueError: it names a reference that was released.
    """
    references: list[Reference] = []
    buffers: list[pickle.PickleBuffer] = []

    def reduce_reference(reference: Reference) -> tuple[Any, ...]:
        if reference.handle is None:
            raise ValueError("the arguments name a reference that was released")
        references.append(reference)
        return _value_of, (len(references) - 1,)

    stream = io.BytesIO()
    pickler = pickle.Pickler(stream, protocol=5, buffer_callback=buffers.append)
    pickler.dispatch_table = copyreg.dispatch_table.copy()
    pickler.dispatch_table[Reference] = reduce_reference
    pickler.dump(value)
    return Packed([stream.getbuffer(), *(buffer.raw() for buffer in buffers)], tuple(references))


def unpack(parts: Sequence[Buffer], references: Sequence[Sequence[Buffer]] = ()) -> Any:
    """The value that `pack` took apart, its arrays read-only.

    Args:
        parts: what was packed.
        references: the parts of each reference it names, in order.
    """
    token = _arrived.set([unpack(each) for each in references])
    try:
        buffers = [memoryview(part).toreadonly() for part in parts[1:]]
        return pickle.loads(parts[0], buffers=buffers)  # noqa: S301 - made by a process of this run
    finally:
        _arrived.reset(token)


def _value_of(index: int) -> Any:
    return _arrived.get()[index]


@dataclass(frozen=True, slots=True)
class Transfer:
    """What one stage has moved so far. Seconds are the driver's: packing, sending, receiving, unpacking."""

    calls: int = 0
    sent_bytes: int = 0
    sent_s: float = 0.0
    received_bytes: int = 0
    received_s: float = 0.0


class Transfers:
    """Counts per stage ("actor.update", "rollout.put" ...). Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stages: dict[str, Transfer] = {}

    def sent(self, stage: str, nbytes: int, seconds: float, calls: int = 1) -> None:
        """Count something that was sent; several times for one call, where it takes several steps."""
        with self._lock:
            old = self._stages.get(stage, Transfer())
            self._stages[stage] = replace(
                old, calls=old.calls + calls, sent_bytes=old.sent_bytes + nbytes, sent_s=old.sent_s + seconds
            )

    def received(self, stage: str, nbytes: int, seconds: float) -> None:
        """Count something that was received."""
        with self._lock:
            old = self._stages.get(stage, Transfer())
            self._stages[stage] = replace(
                old, received_bytes=old.received_bytes + nbytes, received_s=old.received_s + seconds
            )

    def by_stage(self) -> dict[str, Transfer]:
        """A copy of all counts."""
        with self._lock:
            return dict(self._stages)

    def take_metrics(self) -> dict[str, float]:
        """What was moved since the last call, for trackers; counting starts anew.

        Returns:
            `transfer/<stage>_bytes` and `transfer/<stage>_s`, both directions together. A stage is named
            "role.method"; what `Executor.put` made ready is `put`.
        """
        with self._lock:
            stages, self._stages = self._stages, {}
        metrics: dict[str, float] = {}
        for stage, done in sorted(stages.items()):
            metrics[f"transfer/{stage}_bytes"] = float(done.sent_bytes + done.received_bytes)
            metrics[f"transfer/{stage}_s"] = done.sent_s + done.received_s
        return metrics


class Clock:
    """Call it for the seconds since it was made."""

    def __init__(self) -> None:
        self._start = time.perf_counter()

    def __call__(self) -> float:
        """Seconds so far."""
        return time.perf_counter() - self._start
