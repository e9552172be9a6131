"""The rollout backend (`contracts.RolloutBackend`): checks requests, and leaves the rest to the fleet."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from roll_core.cluster import Executor, LocalExecutor, WorkerSpec
from roll_core.contracts import WeightSource
from roll_core.errors import BackendError
from roll_core.types import Completion, GenerateRequest
from roll_plugin_vllm.asks import Facts, mixed_seed
from roll_plugin_vllm.fleet import Fleet
from roll_plugin_vllm.flight import Flight
from roll_plugin_vllm.links import GroupLink, Link, ThreadLink
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.replica import DEFAULT_ENGINE
from roll_plugin_vllm.seat import ReplicaHealth
from roll_plugin_vllm.update import Update
from roll_plugin_vllm.versions import supported_build

logger = logging.getLogger(__name__)

ROLE = "rollout"
"""Role of the replicas' processes."""


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

    Args:
        model: Hugging Face folder.
        seed: the run's seed; it is mixed into every request's random stream.
        options: see `VllmOptions`.
        executor: starts the replicas' processes. None runs a single replica in this process, and several as child
            processes of this machine.
        engine: what generates inside a replica (`replica.start_replica`).

    Raises:
        BackendError: vLLM is missing, unsupported, or cannot serve the model.
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
        self._options = options or VllmOptions()
        self._gpus = 0.0
        if engine == DEFAULT_ENGINE:
            self._gpus = 0.0 if supported_build().is_cpu else float(self._options.tensor_parallel)
        self._seed = seed
        self._arguments = {"model": Path(model), "options": self._options, "engine": engine}
        self._owned = LocalExecutor() if executor is None and self._options.replicas > 1 else None
        self._executor: Executor | None = executor or self._owned
        self._names = (f"{ROLE}[{number}]" for number in itertools.count())
        self._fleet = Fleet(self._options)
        self._running: dict[str, Flight] = {}
        self._is_closed = False
        try:
            links = self._start(self._options.replicas, ROLE)
            for link in links:
                self._fleet.join(link)
            self._facts: Facts = links[0].call("facts", timeout_s=self._options.answer_timeout_s, what="facts").result()
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
            BackendError: the request cannot be served, or every replica has failed.
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
        """
        put = self._executor.put if self._executor is not None else None
        update = Update.of(source, version, with_adapters=bool(self._options.max_lora_rank), put=put)
        self._fleet.publish(update)

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

    def add_replica(self) -> str:
        """Start one more replica while the run goes on; returns its name. Blocks until it serves.

        Raises:
            BackendError: there is no executor to start it with.
        """
        if self._executor is None:
            raise BackendError("a replica of this process cannot be joined by others: give the backend an executor")
        name = next(self._names)
        (link,) = self._start(1, name.replace("[", "-").rstrip("]"), name)
        self._fleet.join(link)
        return name

    def remove_replica(self, name: str) -> None:
        """Let a replica go while the run goes on; its requests go on elsewhere, from their tokens."""
        self._fleet.leave(name)

    def health(self) -> list[ReplicaHealth]:
        """Every replica: whether it serves, its load, how often it was replaced."""
        return self._fleet.health()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _start(self, count: int, role: str, name: str = "") -> list[Link]:
        """Start replicas; blocks until they are ready."""
        names = [name] if name else [next(self._names) for _ in range(count)]
        if self._executor is None:
            link = ThreadLink(names[0], self._arguments, self._options.start_timeout_s)
            try:
                link.start()
            except BaseException:
                link.close()
                raise
            return [link]
        spec = WorkerSpec(
            role=role,
            factory="roll_plugin_vllm.replica:start_replica",
            count=count,
            kwargs=self._arguments,
            gpus=self._gpus,
            cpus=self._options.cpus_per_replica,
            is_restartable=True,
        )
        group = self._executor.start(spec, timeout_s=self._options.start_timeout_s)
        return [GroupLink(group, index, name) for index, name in enumerate(names)]

    def _end(self) -> None:
        self._fleet.close()
        if self._owned is not None:
            self._owned.close()

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
