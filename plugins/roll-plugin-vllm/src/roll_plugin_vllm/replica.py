"""One engine as the driver calls it, in a worker process: asks in, pieces out, weights in two phases or directly."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from roll_core.errors import BackendError
from roll_core.plugin.component import load_object
from roll_plugin_vllm.adapters import write_adapter
from roll_plugin_vllm.asks import Ask, Facts, Piece, Span
from roll_plugin_vllm.engine import Engine
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.segment import Attached, Segment, SegmentUnreachable, Shipment
from roll_plugin_vllm.stopping import StopText

_GATHER_S = 0.004
"""How long a piece waits for others before all of them are sent together."""

DEFAULT_ENGINE = "roll_plugin_vllm.vllm_engine:start_engine"


async def start_replica(model: Path, options: VllmOptions, engine: str = DEFAULT_ENGINE) -> Replica:
    """Start an engine and put a replica around it; the factory of the role's workers.

    Args:
        model: Hugging Face folder.
        options: the backend's options.
        engine: "module:attr" of a coroutine function (model, options) that returns an `Engine`.
    """
    return Replica(await load_object(engine)(model, options), model)


class Replica:
    """See the module. All methods are coroutines of one event loop.

    Args:
        engine: generates.
        model: its model folder, for stop strings.
    """

    def __init__(self, engine: Engine, model: Path) -> None:
        self._engine = engine
        self._stop_text = StopText(model)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._outbox: list[Piece] = []
        self._news = asyncio.Event()
        self._failure: Exception | None = None
        self._own_segment: Segment | None = None
        self._staged_adapter: tempfile.TemporaryDirectory[str] | None = None
        self._adapter: tempfile.TemporaryDirectory[str] | None = None
        self._asleep = False
        self._pending: int | None = None
        """Version that is to be loaded on waking up."""

    async def facts(self) -> Facts:
        """What the engine can take."""
        return self._engine.facts

    # --- requests -----------------------------------------------------------------------------------------------------

    async def submit(self, ask: Ask) -> None:
        """Begin an ask; what it brings comes through `pull`."""
        task = asyncio.get_running_loop().create_task(self._serve(ask), name=f"roll-ask-{ask.key}")
        self._tasks[ask.key] = task
        task.add_done_callback(lambda _: self._tasks.pop(ask.key, None))

    async def abort(self, keys: Sequence[str]) -> None:
        """Let asks end with reason "abort"; unknown ones are ignored, since they may just have ended."""
        for key in keys:
            if key in self._tasks:
                await self._engine.abort(key)

    async def pull(self, wait_s: float) -> list[Piece]:
        """Everything new since the last call; waits for something up to `wait_s` seconds.

        Raises:
            BackendError: the engine has died.
        """
        try:
            await asyncio.wait_for(self._news.wait(), wait_s)
            await asyncio.sleep(_GATHER_S)
        except TimeoutError:
            return []
        if self._failure is not None:
            raise BackendError(f"the engine failed: {self._failure}") from self._failure
        self._news.clear()
        pieces, self._outbox = self._outbox, []
        return pieces

    async def _serve(self, ask: Ask) -> None:
        made = list(ask.token_ids[ask.prompt_length :])
        cut: int | None = None
        try:
            async for piece in self._engine.stream(ask):
                if cut is not None:  # stopped already; only the exact spans are still of interest
                    self._post_stop(piece, cut)
                    continue
                count = self._stop_text.cut(made, piece.tokens, ask.stop) if ask.stop and piece.tokens else None
                made += piece.tokens
                if count is None:
                    self._post(piece)
                    continue
                cut = len(made) - len(ask.token_ids) + ask.prompt_length - len(piece.tokens) + count
                self._post(replace(_head(piece, count), finish_reason="", spans=(), is_stopped=True))
                if piece.finish_reason:
                    self._post_stop(piece, cut)
                else:
                    await self._engine.abort(ask.key)
        except BackendError as error:
            self._post(Piece(ask.key, error=str(error)))
        except Exception as error:  # noqa: BLE001 - whatever ends the engine is the driver's to hear of, through `pull`
            self._failure = error
            self._news.set()

    def _post(self, piece: Piece) -> None:
        self._outbox.append(piece)
        self._news.set()

    def _post_stop(self, piece: Piece, cut: int) -> None:
        """The end of an ask that a stop string ended after `cut` tokens."""
        if piece.finish_reason:
            spans = tuple(Span(s.start, min(s.stop, cut), s.version) for s in piece.spans if s.start < cut)
            self._post(Piece(piece.key, version=piece.version, finish_reason="stop", spans=spans))

    # --- weights ------------------------------------------------------------------------------------------------------

    async def prepare(
        self,
        shipment: Shipment,
        adapter_config: Mapping[str, Any] | None = None,
        content: np.ndarray[Any, np.dtype[np.uint8]] | None = None,
    ) -> bool:
        """First phase of an update: get the new weights and check them; nothing changes.

        Args:
            shipment: where they are.
            adapter_config: they are an adapter of this configuration.
            content: the bytes themselves, where shared memory does not reach.

        Returns:
            Whether they are here; False asks for `content`.

        Raises:
            BackendError: they arrived damaged.
        """
        await self.discard()
        if content is not None:
            self._own_segment = Segment.receive(shipment, content)
            shipment = self._own_segment.shipment
        try:
            if adapter_config is None:
                await asyncio.to_thread(Attached, shipment)  # cheaper to fail here than in the engine's processes
                await self._engine.stage(shipment)
            else:
                attached = Attached(shipment)
                attached.verify()
                self._staged_adapter = write_adapter(attached, adapter_config)
        except SegmentUnreachable:
            if content is not None:
                raise
            return False
        return True

    async def discard(self) -> None:
        """Forget what was prepared."""
        if self._staged_adapter is not None:
            self._staged_adapter.cleanup()
            self._staged_adapter = None
        if self._own_segment is not None:
            self._own_segment.close()
            self._own_segment = None

    async def commit(self, version: int) -> None:
        """Second phase: take over what was prepared. When that fails, the old weights are in use.

        Raises:
            BackendError: the new weights do not fit.
        """
        if self._asleep:
            self._pending = version
            return
        await self._engine.pause()
        try:
            await self._load(version)
        finally:
            await self._engine.resume()

    async def connect(self, route: str, info: Mapping[str, Any]) -> None:
        """Meet the trainer, so that weights can come directly."""
        await self._engine.connect(route, info)

    async def begin(self) -> None:
        """Pause for weights that come directly; `finish` goes on."""
        await self._engine.pause()
        await self._engine.begin()

    async def receive(self, info: Mapping[str, Any]) -> None:
        """Load direct weights, or a part of them.

        Raises:
            BackendError: they are damaged or do not fit; what is in use is neither old nor new.
        """
        await self._engine.receive(info)

    async def finish(self, version: int) -> None:
        """Direct weights are complete."""
        await self._engine.end(version)
        await self._engine.resume()

    async def _load(self, version: int) -> None:
        if self._staged_adapter is None:
            await self._engine.load(version)
        else:
            await self._engine.load_adapter(Path(self._staged_adapter.name), version)
            replaced, self._adapter, self._staged_adapter = self._adapter, self._staged_adapter, None
            if replaced is not None:
                replaced.cleanup()
        await self.discard()

    # --- memory -------------------------------------------------------------------------------------------------------

    async def sleep(self, level: int) -> None:
        """Give device memory up; requests are kept. Updates that come meanwhile are loaded on waking up.

        Raises:
            BackendError: the engine cannot sleep.
        """
        if not self._engine.facts.can_sleep:
            raise BackendError("this replica cannot sleep: set sleep_mode (GPUs only)")
        await self._engine.pause()
        await self._engine.sleep(level)
        self._asleep = True

    async def wake_up(self) -> None:
        """Weights first, then the new ones over them, then memory for keys and values: never all three at once."""
        if not self._asleep:
            return
        await self._engine.wake_up(["weights"])
        if self._pending is not None:
            await self._load(self._pending)
            self._pending = None
        await self._engine.wake_up(["kv_cache"])
        self._asleep = False
        await self._engine.resume()

    async def close(self) -> None:
        """End the engine."""
        for task in list(self._tasks.values()):
            task.cancel()
        await self._engine.close()
        await self.discard()
        if self._adapter is not None:
            self._adapter.cleanup()
            self._adapter = None


def _head(piece: Piece, count: int) -> Piece:
    kept = piece.kept[:count] if piece.kept is not None else None
    return replace(piece, tokens=piece.tokens[:count], logprobs=piece.logprobs[:count], kept=kept)
