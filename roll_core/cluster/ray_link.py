"""One worker as an actor of a Ray cluster."""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from typing import Any

import numpy as np
import ray
from ray.exceptions import RayError, RayTaskError

from roll_core.cluster.errors import WorkerLost
from roll_core.cluster.link import STACK_S, Boot, Greeting, Message, arrange_stacks
from roll_core.cluster.ray_nodes import Nodes, is_node_alive, node_name
from roll_core.cluster.reference import Buffer, Clock, Packed, Parts, Transfers
from roll_core.errors import ComponentError

_INLINE = 1 << 16
"""Bytes up to which arguments travel with the call; larger ones go through the object store once."""
_END_S = 2.0
"""How long a process that Ray was told to end may take."""


class RayLink:
    """An actor that never restarts by itself.

    Args:
        boot: what it is told first.
        actor: the actor, just created.
        environment: variables to set before its object is built.
        nodes: the machines' agents.
        transfers: where bytes are counted.
    """

    def __init__(
        self, boot: Boot, actor: Any, environment: Mapping[str, str], nodes: Nodes, transfers: Transfers
    ) -> None:
        self.boot = boot
        self.environment = environment
        self.ready: Future[Greeting] = Future()
        self.ready.set_running_or_notify_cancel()
        self.node_id = ""
        self._pid = 0
        self._actor = actor
        self._nodes = nodes
        self._transfers = transfers
        self._lock = threading.Lock()
        self._losing = threading.Lock()
        self._waiting: dict[int, Future[Parts]] = {}
        self._lost: WorkerLost | None = None
        self._was_killed = False
        self._follow(actor.watch.remote(), lambda _: None)
        self._follow(actor.hello.remote(), self._met)

    def send(self, message: Message) -> Future[Parts]:
        """See `Link.send`."""
        answer: Future[Parts] = Future()
        with self._lock:
            if self._lost is None:
                self._waiting[message.number] = answer
        if self._lost is not None:
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(copy.copy(self._lost))
            return answer
        parts = self._on_its_way(message.packed, message.stage)
        references = [reference.handle for reference in message.packed.references]
        call = self._actor.carry_out.remote(message.number, message.order, message.method, parts, *references)
        number = message.number  # whoever waits for the reply does not keep the message
        self._follow(call, lambda reply: self._reply(number, reply), answer)
        return answer

    def cancel(self, number: int) -> None:
        """See `Link.cancel`."""
        if self._lost is None:
            self._actor.cancel.remote(number)

    def stacks(self) -> str:
        """See `Link.stacks`."""
        if not self._pid:
            return ""
        is_ready = self.ready.done() and self.ready.exception() is None
        dump = self._nodes.ask(self.node_id, "stacks", self._pid, self.boot.trace, timeout_s=STACK_S + 2.0) or ""
        texts = [arrange_stacks(dump, self.ready.result() if is_ready else None)]
        with contextlib.suppress(RayError, TimeoutError):
            texts.append(ray.get(self._actor.coroutines.remote(), timeout=STACK_S))
        return "\n".join(text for text in texts if text)

    def is_alive(self) -> bool:
        """See `Link.is_alive`."""
        return self._lost is None

    def rss(self) -> int | None:
        """See `Link.rss`."""
        found: int | None = self._nodes.ask(self.node_id, "rss", self._pid) if self._lost is None else None
        return found

    def kill(self) -> None:
        """See `Link.kill`."""
        self._was_killed = True
        ray.kill(self._actor)
        if self._pid and is_node_alive(self.node_id):
            self._nodes.ask(self.node_id, "end", self._pid, _END_S, timeout_s=_END_S + 2.0)
        self._lose("")

    # --- Ray's answers ---

    def _follow(self, reference: Any, then: Any, answer: Future[Parts] | None = None) -> None:
        """Have `then` called with the value of an object reference; a lost actor is found out here."""

        def done(future: Future[Any]) -> None:
            error = future.exception()
            if error is None:
                then(future.result())
            elif isinstance(error, RayTaskError):
                failure = ComponentError(f"{self.boot.role}[{self.boot.index}] cannot be served by Ray: {error.cause}")
                failure.__cause__ = error
                with contextlib.suppress(InvalidStateError):
                    (answer or self.ready).set_exception(failure)
            else:  # asking the agents takes time, and Ray's own thread must not wait for Ray
                threading.Thread(target=self._lose, args=(str(error),), name="roll-lost", daemon=True).start()

        reference.future().add_done_callback(done)

    def _met(self, hello: tuple[int, str]) -> None:
        self._pid, self.node_id = hello
        threading.Thread(target=self._meet, name="roll-meet", daemon=True).start()

    def _meet(self) -> None:
        self._nodes.prepare(self.node_id)
        self._follow(self._actor.greet.remote(node_name(self.node_id)), self._greeted)

    def _greeted(self, greeting: Greeting) -> None:
        with contextlib.suppress(InvalidStateError):
            self.ready.set_result(greeting)

    def _reply(self, number: int, parts: Parts) -> None:
        with self._lock:
            answer = self._waiting.pop(number, None)
        if answer is not None:
            with contextlib.suppress(InvalidStateError):
                answer.set_result(parts)

    def _lose(self, error: str) -> None:
        with self._losing:  # the first to notice gives the reason
            if self._lost is None:
                lost = self._describe(error)
                ray.kill(self._actor)  # it may be unreachable rather than dead
                with self._lock:
                    self._lost = lost
            lost = self._lost
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        with contextlib.suppress(InvalidStateError):
            self.ready.set_exception(copy.copy(lost))
        for answer in waiting.values():
            with contextlib.suppress(InvalidStateError):
                answer.set_exception(copy.copy(lost))  # each waiter adds notes of its own

    def _describe(self, error: str) -> WorkerLost:
        node = node_name(self.node_id) if self.node_id else "an unknown node"
        name = f"{self.boot.role}[{self.boot.index}] (pid {self._pid} on {node})"
        if self._was_killed:
            how = "was ended by the driver"
        elif self.node_id and not is_node_alive(self.node_id):
            how = f"is lost, since its node {node} has left the cluster"
        else:
            how = f"has ended: {_gist(error)}"
            words = self._nodes.ask(self.node_id, "tail", self.boot.log)
            how += f"; the end of {self.boot.log}:\n{words}" if words else ""
        return WorkerLost(f"{name} {how}", self.boot.role, self.boot.index, node)

    def _on_its_way(self, packed: Packed, stage: str) -> Any:
        """The parts, or an object reference to them that all workers share."""
        if packed.handle is None:
            clock = Clock()
            parts, packed.parts = for_ray(packed.parts), []
            packed.handle = ray.put(parts) if packed.nbytes > _INLINE else parts
            self._transfers.sent(stage, packed.nbytes, clock())
        else:
            self._transfers.sent(stage, 0, 0.0)
        return packed.handle


def for_ray(parts: Parts) -> list[Buffer | np.ndarray[Any, Any]]:
    """Parts as Ray keeps them without a copy of its own: large ones as arrays."""
    return [bytes(part) if memoryview(part).nbytes < _INLINE else np.frombuffer(part, np.uint8) for part in parts]


def _gist(error: str) -> str:
    """What Ray says about the end of an actor, without its identifiers and general advice."""
    told = [line.strip() for line in error.splitlines() if not line.startswith("\t")]
    return " ".join(told).partition(" Some common causes")[0]
