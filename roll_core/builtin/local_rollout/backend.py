"""The built-in rollout backend: many `generate` calls at once, one engine behind them.

Requests wait in the order of submission; a task on the caller's event loop hands them to the engine and steps it in a
thread of its own, so that the loop stays free for verifiers and environments. The task lives while there is work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from roll_core.builtin.device import Precision
from roll_core.builtin.local_rollout.cache import SlotStore
from roll_core.builtin.local_rollout.engine import DecodeEngine
from roll_core.builtin.local_rollout.generation import Generation, StopText
from roll_core.builtin.local_rollout.limits import Limits
from roll_core.builtin.local_rollout.loading import load_model
from roll_core.builtin.local_rollout.sampler import UniformStream
from roll_core.builtin.local_rollout.weights import WeightSink
from roll_core.contracts import WeightSource
from roll_core.errors import BackendError
from roll_core.types import Completion, GenerateRequest

_QUIET_TURNS = 3
"""Turns of the event loop without a new request after which a step begins."""
_Pending = tuple[Generation, "asyncio.Future[Completion]"]


class LocalRolloutBackend:
    """Generates with a transformers model in this process, on a CPU or one GPU (`contracts.RolloutBackend`).

    `max_new_tokens` of a request counts its `prefix_ids` too: a resumed request ends where it would have ended.
    A request's samples depend on its seed and the run's, not on what it is batched with: bit for bit on a CPU with
    packed products and a model in the lean form (`linear.packing_works`, `lean.supports`), elsewhere up to rounding.
    One that is resumed from `prefix_ids` goes on up to rounding, since its tokens are then computed as a prompt is.
    The weights are held once as transformers loads them and, on a CPU, once more packed for fast products.

    Args:
        model: Hugging Face folder.
        seed: the run's seed; it is mixed into every request's random stream.
        max_slots: requests decoded together; more wait.
        max_tokens: first length of a slot in tokens, prompt included. Slots grow on demand; null starts from what
            the first requests need.
        precision: dtype of weights and keys and values. `auto` takes bfloat16 where the device is faster with it.
        device: `auto` takes the GPU when there is one.

    Raises:
        BackendError: the model cannot be loaded or run.
    """

    def __init__(
        self,
        *,
        model: Path,
        seed: int,
        max_slots: int = 64,
        max_tokens: int | None = None,
        precision: Precision = "auto",
        device: str = "auto",
    ) -> None:
        if max_slots < 1 or (max_tokens is not None and max_tokens < 1):
            raise BackendError(f"max_slots and max_tokens must be at least 1, got {max_slots} and {max_tokens}")
        self._seed = seed
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="roll-rollout")
        self._loaded = self._executor.submit(load_model, Path(model), precision=precision, device=device).result()
        self.limits = Limits(self._loaded.max_length, self._loaded.vocabulary)
        self._sink = WeightSink(self._loaded.model)
        store = SlotStore(max_slots, max_tokens or 0)
        self._engine = DecodeEngine(self._loaded.runner, store, self._loaded.model.device, StopText(Path(model)))
        self._pending: dict[str, _Pending] = {}
        self._waiting: list[Generation] = []
        self._submitted = 0
        self._barrier: Callable[[], Awaitable[None]] | None = None
        self._task: asyncio.Task[None] | None = None
        self._failure: BackendError | None = None
        """What went wrong while nobody was waiting; the next call hears of it."""
        self._torn: BackendError | None = None
        """Why the weights are half new, if they are."""
        self._is_closed = False

    @property
    def policy_version(self) -> int:
        """Version of the weights in use; 0 until the first sync."""
        return self._engine.version

    @property
    def precision(self) -> str:
        """Format of the weights: "float32" or "bfloat16"."""
        return str(self._loaded.model.dtype).removeprefix("torch.")

    @property
    def steps(self) -> int:
        """Steps of the engine so far; while requests run it grows."""
        return self._engine.steps

    async def generate(self, request: GenerateRequest) -> Completion:
        """Generate one continuation.

        Raises:
            BackendError: the request cannot be served, or the engine failed while it was running.
        """
        generation = self._generation(request)
        if generation.limit <= 0:
            generation.finish_reason = "length"
            return generation.completion()
        self._ensure_serving()
        if request.request_id in self._pending:
            raise BackendError(f"a request with id '{request.request_id}' is running already; ids must differ")
        future: asyncio.Future[Completion] = asyncio.get_running_loop().create_future()
        self._pending[request.request_id] = (generation, future)
        self._waiting.append(generation)
        self._submitted += 1
        try:
            return await future
        finally:
            generation.is_dropped = True
            if self._pending.get(request.request_id, (None,))[0] is generation:
                del self._pending[request.request_id]

    def abort(self, request_id: str) -> None:
        """End a running request; its `generate` call returns the tokens made so far.

        Unknown ids are ignored, since the request may just have ended. Call it from the event loop's thread.
        """
        if request_id in self._pending:
            self._pending[request_id][0].is_dropped = True

    def sync_weights(self, source: WeightSource, version: int) -> None:
        """Take over all weights of `source`; tokens drawn from now on carry `version`.

        Running requests go on with the keys and values they have. Waits for the step in progress.

        Raises:
            BackendError: the weights do not fit (the old ones stay in use), or the source failed midway (nothing is
                generated until a later sync succeeds).
        """
        self._executor.submit(self._sync, source, version).result()

    def set_barrier(self, barrier: Callable[[], Awaitable[None]] | None) -> None:
        """Await `barrier()` after each step in which a request ended, before the next step begins."""
        self._barrier = barrier

    async def close(self) -> None:
        """Fail what is running and free the thread. Closing twice is allowed."""
        if self._is_closed:
            return
        self._is_closed = True
        self._fail_pending(BackendError("the rollout backend was closed"))
        task, self._task = self._task, None
        if task is not None and not task.done() and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._executor.shutdown(wait=True)

    def _step(self, fresh: list[Generation]) -> list[Generation]:
        if self._torn is not None:
            raise self._torn
        return self._engine.step(fresh)

    def _sync(self, source: WeightSource, version: int) -> None:
        names = self._sink.check(source)
        self._torn = BackendError("the last weight sync failed midway; nothing is generated until one succeeds")
        try:
            self._sink.load(source, names)
        except Exception as error:
            self._torn.__cause__ = error
            raise BackendError(f"taking over weights for version {version} failed midway: {error}") from error
        with torch.inference_mode():
            self._loaded.runner.refresh()
        self._engine.version = version
        self._torn = None

    def _generation(self, request: GenerateRequest) -> Generation:
        self.limits.check(request)
        prompt = (*request.token_ids, *request.prefix_ids)
        return Generation(request, prompt, self.limits.new_tokens(request), UniformStream(request.seed, self._seed))

    def _ensure_serving(self) -> None:
        """Start the serving task on the running loop, giving up what an ended loop left behind."""
        if self._is_closed:
            raise BackendError("the rollout backend was closed")
        failure, self._failure = self._failure, None
        for reason in (failure, self._torn):
            if reason is not None:
                raise reason
        loop = asyncio.get_running_loop()
        if self._task is not None and self._task.get_loop() is not loop:
            if not self._task.done() and self._task.get_loop().is_running():
                raise BackendError("the rollout backend serves another running event loop")
            self._forget()
            self._task = None
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._serve(), name="roll-rollout-engine")

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._settle()
                if not self._pending:
                    return
                ended = await loop.run_in_executor(self._executor, self._step, self._next_admitted())
                if self._resolve(ended) and self._barrier is not None:
                    await self._settle()
                    await self._barrier()
        except asyncio.CancelledError:
            for _, future in self._pending.values():
                future.cancel()
            self._forget()
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, every caller must hear of it
            failure = BackendError(f"the rollout engine failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            if not self._fail_pending(failure):
                self._failure = failure

    async def _settle(self) -> None:
        """Let the event loop run until it brings no new request, so that what is batched does not depend on time."""
        quiet = 0
        while quiet < _QUIET_TURNS:
            before = self._submitted
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._submitted == before else 0

    def _next_admitted(self) -> list[Generation]:
        """Take as many waiting requests as there are free slots, oldest first."""
        dropped = [one for one in self._waiting if one.is_dropped]
        for one in dropped:
            one.finish_reason = "abort"
        self._resolve(dropped)
        staying = [one for one in self._waiting if not one.is_dropped]
        free = self._engine.free
        self._waiting = staying[free:]
        return staying[:free]

    def _resolve(self, ended: Sequence[Generation]) -> bool:
        """Hand out results; whether there were any."""
        for generation in ended:
            held, future = self._pending.get(generation.request.request_id, (None, None))
            if held is generation and future is not None and not future.done():
                future.set_result(generation.completion())
        return bool(ended)

    def _fail_pending(self, failure: BackendError) -> bool:
        """Give `failure` to everyone who waits; whether anyone did."""
        futures = [future for _, future in self._pending.values() if not future.done()]
        for future in futures:
            future.set_exception(failure)
        self._forget()
        return bool(futures)

    def _forget(self) -> None:
        """Drop every request, here and (once a step in progress is over) in the engine."""
        self._pending.clear()
        self._waiting.clear()
        self._executor.submit(self._engine.reset)
