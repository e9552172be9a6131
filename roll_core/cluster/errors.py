"""What can go wrong with the processes of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roll_core.errors import RollError

__all__ = ["PlacementError", "RemoteTracebackError", "Stuck", "WorkerLost"]


class PlacementError(RollError, RuntimeError):
    """The cluster cannot hold what was asked for; the message names both."""


class WorkerLost(RollError, RuntimeError):  # noqa: N818 - an event of a run, caught by name all over the engine
    """A worker process has ended, or its machine has.

    Args:
        message: how, where, and the last words of its log.
        role: the worker's role.
        index: its rank or replica.
        node: the machine it was on.
        code: its exit status; negative for a signal, None where nobody could see it.
    """

    def __init__(self, message: str, role: str = "", index: int = -1, node: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.role = role
        self.index = index
        self.node = node
        self.code = code

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.role, self.index, self.node, self.code)


class Stuck(RollError, TimeoutError):  # noqa: N818 - see WorkerLost
    """A bounded wait has ended without an answer.

    Args:
        message: who waits for whom, since when, and where the stuck workers are.
        role: role of the workers that did not answer.
        indices: their ranks or replicas.
        what: what was waited for.
        stacks: stack traces by index.
    """

    def __init__(
        self,
        message: str,
        role: str = "",
        indices: Sequence[int] = (),
        what: str = "",
        stacks: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.role = role
        self.indices = tuple(indices)
        self.what = what
        self.stacks = dict(stacks or {})

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.role, self.indices, self.what, self.stacks)


class RemoteTracebackError(Exception):
    """Carries the text of a worker's traceback, as the cause of the error that was raised there."""
