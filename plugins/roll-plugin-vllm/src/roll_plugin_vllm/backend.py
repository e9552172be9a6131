"""The rollout backend (`contracts.RolloutBackend`): checks requests, and leaves the rest to the fleet."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from roll_core.cluster import Executor, LocalExecutor
from roll_core.contracts import WeightSource
from roll_core.errors import BackendError, ConfigError
from roll_core.types import Completion, GenerateRequest
from roll_plugin_vllm.asks import Facts, mixed_seed
from roll_plugin_vllm.fleet import Fleet
from roll_plugin_vllm.flight import Flight
from roll_plugin_vllm.member import ReplicaHealth
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.replica import DEFAULT_ENGINE
from roll_plugin_vllm.starter import ROLE, Starter
from roll_plugin_vllm.update import Update
from roll_plugin_vllm.versions import supported_build

logger = logging.getLogger(__name__)


def make_backend(*, model: Path, seed: int, executor: Executor | None = None, **values: Any) -> VllmBackend:
    """The component's factory: options as keyword arguments, beside what the engine supplies."""
    options = {name: value for name, value in values.items() if name in VllmOptions.model_fields}
    return VllmBackend(model=model, seed=seed, executor=executor, options=VllmOptions(**options))


class VllmBackend:
    """Generates with vLLM, in one replica or several.

    `max_new_tokens` of a request counts its `prefix_ids` too. Draws are keyed by seed and position, so that a response
    that is resumed, or moved to another replica, goes on as it would have gone on, up to rounding: what vLLM computes
    for a token depends a little on what it is batched with. `set_barrier` has no effect on which steps vLLM makes: a
    rollout that is stopped early may have more or fewer tokens from run to run.

    Every replica is a worker process. Without an executor the backend starts one of its own, on this machine, so that a
    replica can be replaced, joined by others and ended, and the process of the trainer never imports vLLM.

    Args:
        model: Hugging Face folder.
        seed: the run's seed; it is mixed into every request's random stream.
        options: see `VllmOptions`.
        executor: starts the replicas' processes; None starts them on this machine, and ends them with `close`.
        engine: what generates inside a replica (`replica.start_replica`).

    Raises:
        BackendError: vLLM is missing, unsupported, or cannot serve the model.
        ConfigError: options and the run's placement contradict each other.
    """

    def __init__(
        self,
        *,
        model: Path,
        seed: int,
        options: VllmOptions | None = None,
        executor: Executor | None = None,
        engine: str = DEFAULT_ENGINE,
    ) -> None:
        is_cpu = engine != DEFAULT_ENGINE or _is_cpu_build(options or VllmOptions())
        seats = executor.seats(ROLE) if executor is not None else None
        self._options = (options or VllmOptions()).seated(seats)
        self._seed = seed
        self._running: dict[str, Flight] = {}
        self._is_closed = False
        self._scaling = threading.Lock()
        starting: Executor = LocalExecutor() if executor is None else executor
        self._own = starting if executor is None else None
        arguments = {"model": Path(model), "options": self._options, "engine": engine}
        self._start = Starter(starting, arguments, self._options, seats, is_cpu=is_cpu)
        self._fleet = Fleet(self._options, self._start.give_back)
        try:
            self._grow(self._options.count)
        except BaseException:
            self._end()
            raise

    # --- contract -----------------------------------------------------------------------------------------------------

    @property
    def policy_version(self) -> int:
        """Version of the weights in use; 0 until the first sync."""
        return self._fleet.publisher.version

    async def generate(self, request: GenerateRequest) -> Completion:
        """Generate one continuation.

        Raises:
            BackendError: the request cannot be served.
            WorkerLost: every replica has failed, and none could be replaced.
        """
        if self._is_closed:
            raise BackendError("the rollout backend was closed")
        if request.request_id in self._running:
            raise BackendError(f"a request with id '{request.request_id}' is running already; ids must differ")
        flight = self._flight(request)
        if flight.limit <= 0:
            return flight.completion("length")
        self._running[request.request_id] = flight
        try:
            self._fleet.dispatch(flight)
            return await asyncio.wrap_future(flight.future)
        except asyncio.CancelledError:
            self._fleet.drop(flight)
            raise
        finally:
            del self._running[request.request_id]

    def abort(self, request_id: str) -> None:
        """End a running request; its `generate` call returns the tokens made so far. Unknown ids are ignored."""
        flight = self._running.get(request_id)
        if flight is not None:
            self._fleet.abort(flight)

    def sync_weights(self, source: WeightSource, version: int) -> None:
        """Take over the weights of `source` everywhere; tokens drawn from then on carry `version`.

        With `max_lora_rank` set, a source that is an `AdapterSource` too hands over its adapter alone. Running requests
        go on with the new weights; what vLLM had computed of them is computed anew. Blocks until it is done.

        Raises:
            BackendError: the weights do not fit or arrived damaged; the old ones stay in use.
            WorkerLost: every replica has failed, and none could be replaced.
        """
        update = Update.of(source, version, with_adapters=bool(self._options.max_lora_rank), put=self._start.put)
        self._fleet.publish(update, source)

    def set_barrier(self, barrier: Callable[[], Awaitable[None]] | None) -> None:
        """Nothing: vLLM decides on its steps itself (see the class)."""
        if barrier is not None:
            logger.info("vLLM does not wait for verdicts between steps: early stops depend on the clock")

    async def close(self) -> None:
        """Fail what is running and end the replicas. Closing twice is allowed."""
        if not self._is_closed:
            self._is_closed = True
            await asyncio.to_thread(self._end)

    # --- beyond the contract ------------------------------------------------------------------------------------------

    def sleep(self, level: int = 1) -> None:
        """Give device memory up between phases; requests are kept. Needs `sleep_mode`.

        Args:
            level: 1 keeps the weights in host memory; 2 forgets them (they come back from the last sync).
        """
        self._fleet.publisher.sleep(level)

    def wake_up(self) -> None:
        """Take the memory back, with the weights of the last sync, also of one made meanwhile."""
        self._fleet.publisher.wake_up()

    def scale(self, replicas: int) -> None:
        """Let replicas join or leave while the run goes on; returns when those that join serve.

        Those that join get the weights of now first. Requests of those that leave (the least busy ones) go on
        elsewhere, from their tokens.

        Raises:
            ConfigError: a count that cannot be, or more than the placement has seats for.
            Exception: whatever a replica raised that could not start; the others stay.
        """
        if replicas < 1:
            raise ConfigError(f"rollout needs at least one replica, got {replicas}")
        with self._scaling:
            serving = sorted(self._fleet.health(), key=lambda one: (one.is_live, one.load))
            if len(serving) < replicas:
                self._grow(replicas - len(serving))
            for one in serving[: len(serving) - replicas] if len(serving) > replicas else ():
                self._fleet.leave(one.name)

    def add_replica(self) -> str:
        """Start one more replica while the run goes on; returns its name. See `scale`."""
        with self._scaling:
            return self._grow(1)[0]

    def remove_replica(self, name: str) -> None:
        """Let one replica go while the run goes on. See `scale`.

        Raises:
            BackendError: there is none of that name, or no other one.
        """
        with self._scaling:
            self._fleet.leave(name)

    def health(self) -> list[ReplicaHealth]:
        """Every replica: whether it serves, its load, how often it was replaced."""
        return self._fleet.health()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _grow(self, count: int) -> list[str]:
        links = self._start(count)
        try:
            for link in links:
                self._fleet.join(link)
        except BaseException:
            known = {one.name for one in self._fleet.health()}
            for link in links:
                if link.name not in known:
                    self._start.end(link)
            raise
        return [link.name for link in links]

    def _end(self) -> None:
        self._fleet.close()
        if self._own is not None:
            self._own.close()

    @property
    def _facts(self) -> Facts:
        assert self._fleet.facts is not None  # the first replica has joined
        return self._fleet.facts

    def _flight(self, request: GenerateRequest) -> Flight:
        problem = self._problem(request)
        if problem:
            raise BackendError(f"request '{request.request_id}': {problem}")
        made = len(request.prefix_ids)
        room = self._facts.max_length - len(request.token_ids) - made
        return Flight(request, mixed_seed(request, self._seed), min(request.sampling.max_new_tokens - made, room))

    def _problem(self, request: GenerateRequest) -> str:
        """What makes a request impossible, or an empty string."""
        sampling, most, vocabulary = request.sampling, self._facts.max_length, self._facts.vocabulary
        prompt = (*request.token_ids, *request.prefix_ids)
        is_possible = sampling.temperature >= 0 and 0 < sampling.top_p <= 1 and sampling.top_k >= 0
        adapter = request.policy.adapter if request.policy else None
        problems = {
            "the prompt is empty": not request.token_ids,
            f"the prompt has {len(prompt)} tokens, the model takes {most} with the response; shorten or drop it": (
                len(prompt) >= most and not request.prefix_ids
            ),
            f"the prompt holds a token outside the model's vocabulary of {vocabulary}": bool(prompt)
            and (min(prompt) < 0 or max(prompt) >= vocabulary),
            f"impossible sampling parameters: {sampling}": not is_possible or sampling.max_new_tokens < 0,
            "this backend takes text only, the prompt has media": bool(request.media),
            f"no adapter named '{adapter}'; known: {', '.join(sorted(self._options.adapters)) or 'none'}": (
                adapter is not None and adapter not in self._options.adapters
            ),
        }
        return next((text for text, is_so in problems.items() if is_so), "")


def _is_cpu_build(options: VllmOptions) -> bool:
    """Whether the vLLM that is installed here computes on CPUs; checks that it can do what is asked for."""
    build = supported_build()
    if build.is_cpu and options.sleep_mode:
        raise BackendError(
            "sleep_mode: vLLM's CPU build has no sleep mode (its worker says 'sleep mode is not supported on CPU, "
            "ignore it.' and keeps the memory); leave it off"
        )
    return build.is_cpu
