"""Weights from the trainer's tensors straight into the replicas, through pairs of engines of vLLM's weight transfer.

The driver holds vLLM's trainer engine; the client it drives is every replica at once. Replicas pause when an update
begins and go on when it has ended. The bytes are loaded as they arrive, so an update that fails half-way leaves neither
old nor new weights.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import torch

from roll_core.cluster import Stuck
from roll_core.contracts import WeightSource
from roll_core.errors import BackendError
from roll_plugin_vllm.link import Link, call_all
from roll_plugin_vllm.member import Member
from roll_plugin_vllm.routes import Transfer
from roll_plugin_vllm.update import Update

logger = logging.getLogger(__name__)

_CLOSE_S = 5.0


class DirectSender:
    """Stays connected between updates, until replicas come or go. Not safe from several threads.

    Args:
        span: workers of one replica.
        bound_s: longest wait for an update in seconds.
    """

    def __init__(self, span: int, bound_s: float) -> None:
        self._span = span
        self._bound_s = bound_s
        self._engine: Any = None
        self._client: _Replicas | None = None
        self._source: Any = None
        self._connected: tuple[Any, ...] = ()

    def send(self, route: Transfer, members: Sequence[Member], source: WeightSource, update: Update) -> None:
        """Let every replica load the tensors of `source`.

        Raises:
            BackendError: a replica cannot take them.
            WorkerLost, Stuck: a replica is lost, or did not answer in time.
        """
        wanted = (route, *(member.life for member in members))
        device = next(iter(update.devices), torch.device("cpu"))

        def work() -> None:
            if device.type == "cuda":
                torch.cuda.set_device(device)  # this thread's
            if self._connected != wanted:
                self.close()
                self._connect(route, members, source)
                self._connected = wanted
            assert self._client is not None
            self._client.version = update.version
            self._source.current = source
            self._engine.send_weights()

        try:
            _bounded(work, self._bound_s, f"weights of version {update.version} over {route}")
        except BaseException:
            self._connected = ()
            raise

    def close(self) -> None:
        """Give the connections up."""
        engine, self._engine, self._connected = self._engine, None, ()
        if engine is not None:
            try:
                _bounded(engine.shutdown, _CLOSE_S, "end of the connection to replicas")
            except Exception as error:  # noqa: BLE001 - nothing depends on it any more
                logger.warning("a connection to replicas did not close: %s", error)

    def _connect(self, route: Transfer, members: Sequence[Member], source: WeightSource) -> None:
        from vllm.distributed.weight_transfer import WeightTransferTrainerFactory

        from roll_plugin_vllm.trainer_side import TrainerSource, init_info_for

        links = {member.name: member.link for member in members}
        self._client = _Replicas(route, links, self._span, self._bound_s)
        self._source = TrainerSource(source)
        info = init_info_for(route, world_size=1 + self._span * len(links), bound_s=self._bound_s)
        self._engine = WeightTransferTrainerFactory.trainer_init(info, client=self._client, source=self._source)


class _Replicas:
    """vLLM's client of a trainer engine (`VLLMWeightSyncClient`), over all replicas.

    Args:
        route: the way.
        links: the replicas.
        span: workers of each.
        bound_s: longest wait of each call.
    """

    def __init__(self, route: Transfer, links: Mapping[str, Link], span: int, bound_s: float) -> None:
        self.version = 0
        self._route = route
        self._links = links
        self._span = span
        self._bound_s = bound_s

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Every worker of every replica gets a rank of its own, after the trainer's."""
        futures = {}
        for index, (name, link) in enumerate(self._links.items()):
            own = {"rank_offset": 1 + index * self._span} if "rank_offset" in init_info else {}
            what = f"connection of {name} over {self._route}"
            told = {**init_info, **own}
            futures[name] = link.call("connect", self._route, told, timeout_s=self._bound_s, what=what)
        _raise_first({name: future.exception() for name, future in futures.items()})

    def start_weight_update(self) -> None:
        """Replicas pause."""
        self._all("begin")

    def update_weights(self, update_info: dict[str, Any] | list[dict[str, Any]]) -> None:
        """Replicas receive and load."""
        self._all("receive", update_info)

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Replicas go on, with the version of the update."""
        self._all("finish", self.version)

    def _all(self, method: str, *args: Any) -> None:
        what = f"weights of version {self.version} over {self._route}"
        _raise_first(call_all(self._links, method, *args, timeout_s=self._bound_s, what=what)[1])


def _raise_first(errors: Mapping[str, BaseException | None]) -> None:
    """The error that explains the others: a lost replica makes those fail that wait for it."""
    found = [error for error in errors.values() if error is not None]
    for error in sorted(found, key=lambda one: isinstance(one, BackendError)):
        raise error


def _bounded(work: Callable[[], None], bound_s: float, what: str) -> None:
    """Run `work` on a thread that may be left behind: a collective cannot be broken off."""
    done: Future[None] = Future()

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)
        else:
            done.set_result(None)

    threading.Thread(target=run, name="roll-weights", daemon=True).start()
    try:
        done.result(bound_s)
    except TimeoutError as error:
        if isinstance(error, Stuck):
            raise
        raise Stuck(
            f"driver waits for its replicas: {what}; not done after {bound_s:g} s", "rollout", what=what
        ) from None
