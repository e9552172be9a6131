"""The ranks as the driver sees them: how many there are and where, what is asked of them, and how they end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from roll_core.cluster import Executor, LocalExecutor, Seat, Stuck, WorkerGroup, WorkerLost, WorkerSpec
from roll_core.cluster.devices import visible_devices
from roll_core.cluster.errors import RemoteTracebackError
from roll_core.contracts import TrainSetup
from roll_core.errors import BackendError, ComponentError, ConfigError, RollError
from roll_plugin_fsdp.messages import Refused
from roll_plugin_fsdp.options import FsdpOptions, Mesh

ROLE = "actor"
_PLACED_AS = "train"
"""What placements call the role."""


class Team:
    """Starts the ranks and calls them together. When one is lost, hangs or fails alone, all are ended.

    Args:
        factory: what every rank is made by.
        setup: model, optimiser, and which further models are needed.
        options: mesh, memory and bounds.
        executor: starts the ranks; None starts them on this machine, and ends them with `end`.

    Raises:
        ConfigError: the options contradict the placement or each other.
        BackendError: a model cannot be loaded, or not be used as asked.
        WorkerLost, Stuck, PlacementError: ranks could not be started.
    """

    def __init__(self, factory: str, setup: TrainSetup, options: FsdpOptions, executor: Executor | None) -> None:
        places = places_for(options, executor)
        self.mesh: Mesh = options.mesh(places.count)
        self._options = options.model_copy(update={"device": places.device})
        self._ended = ""
        spec = WorkerSpec(
            role=ROLE,
            factory=factory,
            count=places.count,
            kwargs={"setup": setup, "options": self._options.model_dump()},
            gpus=1.0 if places.device == "cuda" else 0.0,
            cpus=options.cpus_per_rank,
            seats=places.seats,
        )
        starter: Executor = LocalExecutor() if executor is None else executor
        self._own = starter if executor is None else None
        try:
            self._group: WorkerGroup = starter.start(spec, timeout_s=options.start_timeout_s)
        except BaseException as error:
            if self._own is not None:
                self._own.close()
            if isinstance(error, RollError) or not isinstance(error, Exception):
                raise
            raise _explained(error, "its start") from error

    def call(self, method: str, *args: Any, what: str, is_long: bool = False) -> list[Any]:
        """Call a method of every rank; answers in rank order. See `scatter` for what it raises.

        Args:
            method: name of the method.
            args: its arguments.
            what: what it is for, in the words of a message.
            is_long: whether it may take as long as a start.
        """
        return self._ask(method, [args] * self.mesh.size, what, is_long=is_long)

    def scatter(self, method: str, per_share: Sequence[tuple[Any, ...]], what: str) -> list[Any]:
        """Call a method with arguments by share of the data; one answer a share.

        Raises:
            RollError: what some rank refused the request with.
            WorkerLost, Stuck: a rank has ended, does not answer, or lost touch with the others; all are ended.
            BackendError: a rank failed by itself where the others need it; all are ended.
        """
        answers = self._ask(method, [args for args in per_share for _ in range(self.mesh.tensor)], what)
        return answers[:: self.mesh.tensor]

    def end(self, why: str) -> None:
        """End all ranks, and an executor of our own; once more does nothing."""
        if not self._ended:
            self._ended = why
            self._group.close()
            if self._own is not None:
                self._own.close()

    def _ask(self, method: str, args: Sequence[tuple[Any, ...]], what: str, *, is_long: bool = False) -> list[Any]:
        if self._ended:
            raise BackendError(f"the ranks are gone ({self._ended}); build the strategy again and load a checkpoint")
        limit = self._options.start_timeout_s if is_long else self._options.step_timeout_s
        try:
            answers = self._group.scatter(method, args, timeout_s=limit, what=what)
        except (WorkerLost, Stuck) as error:
            self.end(str(error).partition("\n")[0])
            raise
        except Exception as error:
            if isinstance(error.__cause__, RemoteTracebackError):
                self.end(f"a rank failed in '{method}'")
            if isinstance(error, ComponentError) and self._own is not None:
                error.add_note("ranks that the strategy starts itself know no rollfile; set cluster.executor: local")
            if isinstance(error, RollError):
                raise
            if self._ended:
                raise _explained(error, what) from error
            raise BackendError(
                f"'{method}' cannot be sent to the ranks: {error}; define the functions of the objective at the top "
                "level of a module that they can import"
            ) from error
        _raise_refusal(method, answers)
        return answers


@dataclass(frozen=True, slots=True)
class Places:
    """How many ranks there are, what they compute on, and their seats where a placement gives them some."""

    count: int
    device: str
    seats: tuple[Seat, ...] | None = None


def places_for(options: FsdpOptions, executor: Executor | None) -> Places:
    """Where ranks go: where the placement says, else as many as the options say.

    Without either, a strategy that starts its ranks itself takes every device this process may use; else there is one.

    Raises:
        ConfigError: the options contradict the placement.
    """
    seats = executor.seats(_PLACED_AS) if executor is not None else None
    if seats is not None:
        _check_seats(options, seats)
        return Places(len(seats), "cuda", seats)
    device = options.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    takes_all = options.world_size is None and executor is None and device == "cuda"
    return Places(max(len(visible_devices()), 1) if takes_all else options.world_size or 1, device)


def _check_seats(options: FsdpOptions, seats: Sequence[Seat]) -> None:
    names = ", ".join(seat.name for seat in seats)
    if options.device == "cpu":
        raise ConfigError(
            f"train.strategy.device is cpu, but the placement gives training the devices {names}; take the option out, "
            "or plan for no devices (cluster.gpus: none)"
        )
    wide = next((seat for seat in seats if len(seat.devices) > 1), None)
    if wide is not None:
        raise ConfigError(
            f"the placement gives one rank of training the devices {wide.name}; a rank has one device, so write "
            "each of them as a process of its own in cluster.map.train"
        )
    if options.world_size not in {None, len(seats)}:
        raise ConfigError(
            f"train.strategy.world_size is {options.world_size}, but the placement gives training {len(seats)} devices "
            f"({names}); take the option out, or write cluster.train.gpus or cluster.map.train to match"
        )


def _explained(error: Exception, what: str) -> RollError:
    """An error that a rank failed with by itself, for a driver that has ended the others.

    Exchanges fail when a rank or the way to it is gone, which is a loss; all else would happen again.
    """
    notes = "; ".join(getattr(error, "__notes__", ()))
    text = f"a rank failed in {what}, and all were ended: {type(error).__name__}: {error} ({notes})"
    is_exchange = isinstance(error, dist.DistError) or "gloo" in str(error).lower()
    return WorkerLost(text, role=ROLE) if is_exchange else BackendError(text)


def _raise_refusal(method: str, answers: Sequence[Any]) -> None:
    """Raise the error of the first rank that could not carry a request out, if any."""
    refused = {rank: answer for rank, answer in enumerate(answers) if isinstance(answer, Refused)}
    for rank, answer in refused.items():
        if answer.error is not None:
            answer.error.add_note(f"raised by rank {rank} in '{method}'; all ranks left the request")
            raise answer.error from RemoteTracebackError(f"\n{answer.trace}")
    if refused:
        raise BackendError(f"the ranks refused '{method}' without a reason")
