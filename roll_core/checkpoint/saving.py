"""One checkpoint on its way to the disk: what must be copied is copied, the rest goes on in a thread."""

from __future__ import annotations

import errno
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from roll_core.checkpoint.files import STATE_FILE, AbandonedError, seal, write_text
from roll_core.errors import CheckpointError, RollError

logger = logging.getLogger(__name__)

PARTIAL = ".partial-"
"""Begins the name of a folder that is being written."""

_LITTLE = 32 << 20
"""With less free space than this, in bytes, the disk is full where the writer's error does not say what is wrong."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FORBIDDEN = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


class Saves(Protocol):
    """A train strategy, as far as checkpoints go."""

    def save(self, folder: Path) -> None:
        """Write everything into an existing, empty folder."""
        ...


@dataclass(frozen=True, slots=True)
class StrategyFiles:
    """How the train strategy's files come about."""

    begin: Callable[[Path], None]
    """Copies the state and begins to write it; or writes all of it, where there is no `finish`."""
    finish: Callable[[], None] | None = None
    """Waits for what was begun."""
    is_written: Callable[[], bool] = lambda: True
    """Whether `finish` would return at once; True where nobody can say."""

    @classmethod
    def of(cls, strategy: Saves) -> StrategyFiles:
        """In the background where the strategy offers `begin_save` and `finish_save`."""
        begin, finish = getattr(strategy, "begin_save", None), getattr(strategy, "finish_save", None)
        if begin is None or finish is None:
            return cls(strategy.save)
        return cls(begin, finish, getattr(strategy, "has_saved", lambda: True))


class Saving:
    """A checkpoint that is being written. Made by `CheckpointStore.begin`.

    Its methods call the train strategy and are therefore called only while nobody else does.

    Args:
        step: number of committed steps.
        partial: where it is written; exists.
        files: how the strategy's files come about; begun.
        state: the engine's state, as JSON.
        publish: gives the written folder its name.
        good: the checkpoint that an error leaves, for its message.
    """

    def __init__(
        self,
        step: int,
        partial: Path,
        *,
        files: StrategyFiles,
        state: str,
        publish: Callable[[Path], None],
        good: Callable[[], Path | None],
    ) -> None:
        self.step = step
        self.started = time.perf_counter()
        self.seconds = 0.0
        """From the beginning until it was whole."""
        self.size = 0
        """Bytes of all files."""
        self._partial, self._files, self._state = partial, files, state
        self._publish, self._good = publish, good
        self._abandoned = threading.Event()
        self._sealed: Future[None] | None = None
        if files.finish is None:
            self._seal()

    @property
    def is_waiting(self) -> bool:
        """Whether `advance` or `wait` would wait for the strategy's files or the disk."""
        return not self._files.is_written() if self._sealed is None else not self._sealed.done()

    @property
    def is_over(self) -> bool:
        """Whether it is whole, has failed, or was abandoned."""
        return self._abandoned.is_set() or (self._sealed is not None and self._sealed.done())

    def advance(self) -> None:
        """Wait for the strategy's files; checksums and the disk are a thread's business from then on.

        Raises:
            CheckpointError: they could not be written.
        """
        if self._sealed is None and not self._abandoned.is_set():
            try:
                with failures_explained(self._partial, self._good):
                    if self._files.finish is not None:
                        self._files.finish()
            except BaseException:
                self._abandoned.set()
                shutil.rmtree(self._partial, ignore_errors=True)
                raise
            self._seal()

    def wait(self) -> None:
        """Return when the checkpoint has its name.

        Raises:
            CheckpointError: it could not be written, or was abandoned.
        """
        self.advance()
        if self._sealed is None:
            raise CheckpointError(f"the checkpoint of step {self.step} was given up before it was written")
        with failures_explained(self._partial, self._good):
            self._sealed.result()

    def abandon(self) -> None:
        """Stop writing; returns when the thread has. What ranks still write is left for `CheckpointStore.clean`."""
        self._abandoned.set()
        if self._sealed is not None:
            self._sealed.exception()

    def _seal(self) -> None:
        self._sealed = Future()
        threading.Thread(target=self._work, args=(self._sealed,), name="roll-checkpoint", daemon=True).start()

    def _work(self, sealed: Future[None]) -> None:
        """In a thread: state, checksums, fsync, name."""
        try:
            write_text(self._partial / STATE_FILE, self._state)
            self.size = seal(self._partial, self.step, self._abandoned.is_set)
            self._publish(self._partial)
            self.seconds = time.perf_counter() - self.started
        except AbandonedError:
            shutil.rmtree(self._partial, ignore_errors=True)
            sealed.set_exception(CheckpointError(f"the checkpoint of step {self.step} was given up"))
        except BaseException as error:  # noqa: BLE001 - a thread's; whoever waits for it raises it
            shutil.rmtree(self._partial, ignore_errors=True)
            sealed.set_exception(error)
        else:
            sealed.set_result(None)


@contextmanager
def failures_explained(partial: Path, good: Callable[[], Path | None]) -> Iterator[None]:
    """Turn errors of the disk into one that says what could not be written, why, what to do, and what is left.

    Errors of the run's machinery (a lost worker, a wait that has ended) are none of the disk and pass.
    """
    try:
        yield
    except CheckpointError as error:
        raise _explained(error, partial, good()) from error
    except RollError:
        raise
    except (OSError, RuntimeError) as error:
        raise _explained(error, partial, good()) from error


def _explained(error: Exception, partial: Path, good: Path | None) -> CheckpointError:
    final = partial.with_name(partial.name.removeprefix(PARTIAL))
    left = "there is no earlier one" if good is None else f"{good} is still good"
    return CheckpointError(f"cannot write checkpoint {final}: {error}{_advice(error, partial)}; {left}")


def _advice(error: BaseException, folder: Path) -> str:
    """What to do about it, as far as that can be told."""
    number = _errno(error)
    free = _free(folder)
    if number in _FULL or (number is None and free is not None and free < _LITTLE):
        room = "" if free is None else f" ({free / 1e6:.0f} MB are free)"
        return f"; make room on that disk{room}, or keep fewer checkpoints (checkpoint.keep), then resume the run"
    if number in _FORBIDDEN:
        return f"; make {folder.parent} writable for this user, then resume the run"
    if number == errno.EFBIG:
        return "; the file system, or a limit of this process (ulimit -f), allows no file of that size"
    return ""


def _errno(error: BaseException | None) -> int | None:
    while error is not None:
        number: Any = getattr(error, "errno", None)
        if number is not None:
            return int(number)
        error = error.__cause__ or error.__context__
    return None


def _free(folder: Path) -> int | None:
    """Free bytes where `folder` lies, or would lie; None when nobody can say."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError:  # does not exist, or cannot be looked at: ask further up
            continue
    return None
