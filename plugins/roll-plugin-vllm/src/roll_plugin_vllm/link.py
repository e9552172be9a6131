"""How the driver reaches one replica: in a worker process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from roll_core.cluster import WorkerGroup


class Link:
    """A replica. Calls fail with the replica's own `BackendError`s; any other error means that it is lost.

    Args:
        group: the worker process, a group of one.
    """

    def __init__(self, group: WorkerGroup) -> None:
        self._group = group

    @property
    def name(self) -> str:
        """For messages and routing."""
        return self._group.role

    def call(self, method: str, *args: Any, timeout_s: float, what: str) -> Future[Any]:
        """Call a method of `Replica` and do not wait. Any thread."""
        return self._group.submit(0, method, *args, timeout_s=timeout_s, what=what)

    def restart(self) -> None:
        """Put a fresh process in its place; blocks until it is ready."""
        self._group.restart(0)

    def close(self) -> None:
        """End the process; once more does nothing."""
        self._group.close()


def call_all(
    links: Mapping[str, Link], method: str, *args: Any, timeout_s: float, what: str
) -> tuple[dict[str, Any], dict[str, Exception]]:
    """Call a method of several replicas at once; their answers and their errors, by name."""
    futures = {name: link.call(method, *args, timeout_s=timeout_s, what=what) for name, link in links.items()}
    answers: dict[str, Any] = {}
    errors: dict[str, Exception] = {}
    for name, future in futures.items():
        try:
            answers[name] = future.result()
        except Exception as error:  # noqa: BLE001 - every failure is the caller's to judge
            errors[name] = error
    return answers, errors
