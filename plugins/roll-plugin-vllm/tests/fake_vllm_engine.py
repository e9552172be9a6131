"""An engine without vLLM: a token depends on the weights, the seed and its position, and on nothing else."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

from roll_core.errors import BackendError
from roll_plugin_vllm.asks import Ask, Facts, Piece, Span
from roll_plugin_vllm.options import VllmOptions
from roll_plugin_vllm.segment import Attached, Shipment

VOCABULARY = 50


def token_at(weights: int, seed: int, position: int) -> int:
    digest = hashlib.blake2b(f"{weights}:{seed}:{position}".encode(), digest_size=4).digest()
    return 3 + int.from_bytes(digest, "big") % (VOCABULARY - 3)


async def start_engine(model: Path, options: VllmOptions) -> FakeEngine:
    return FakeEngine(options)


async def slow(model: Path, options: VllmOptions) -> FakeEngine:
    """Takes long to start, from the second time on."""
    await asyncio.sleep(0.5)
    return FakeEngine(options)


class FakeEngine:
    """`engine_args` of the options say how it misbehaves.

    step_s: seconds a token takes. fail_at: raises at this position, once (file `marker`). exit_at: ends the process
    there, once. mute_at: says nothing more there, once. refuse_stage: refuses any weights. refuse: load refuses weights
    whose first value is this.
    """

    def __init__(self, options: VllmOptions) -> None:
        self.wants = options.engine_args
        self.facts = Facts(200, VOCABULARY, options.sleep_mode)
        self.weights, self.version = 0, 0
        self.staged: int | None = None
        self.running = asyncio.Event()
        self.running.set()
        self.aborted: set[str] = set()
        self.log: list[str] = []
        self.is_dead = False

    def once(self, what: str, position: int) -> bool:
        if self.wants.get(what) != position or Path(self.wants["marker"]).exists():
            return False
        Path(self.wants["marker"]).touch()
        return True

    async def stream(self, ask: Ask) -> AsyncIterator[Piece]:
        spans: list[Span] = []
        for made in range(ask.limit):
            await asyncio.sleep(self.wants.get("step_s", 0.001))
            await self.running.wait()
            if self.is_dead:
                raise RuntimeError("the engine core is dead")
            if ask.key in self.aborted:
                yield Piece(ask.key, version=self.version, finish_reason="abort", spans=tuple(spans))
                return
            position = ask.made + made
            if self.once("exit_at", position):
                os._exit(9)
            if self.once("fail_at", position):
                self.is_dead = True
                raise RuntimeError("the engine core is dead")
            if self.once("mute_at", position):
                self.running.clear()
            seed = 0 if ask.temperature == 0 else ask.seed
            token = token_at(self.weights, seed, position)
            if spans and spans[-1].version == self.version:
                spans[-1] = Span(spans[-1].start, made + 1, self.version)
            else:
                spans.append(Span(made, made + 1, self.version))
            reason = "stop" if token in ask.stop_token_ids else "length" if made + 1 == ask.limit else ""
            yield Piece(
                ask.key, [token], [-1.0 - self.weights], None, self.version, reason, tuple(spans) if reason else ()
            )
            if reason:
                return

    async def abort(self, key: str) -> None:
        self.aborted.add(key)

    async def pause(self) -> None:
        self.running.clear()
        self.log.append("pause")

    async def stage(self, shipment: Shipment) -> None:
        attached = Attached(shipment)
        attached.verify()
        if self.wants.get("refuse_stage"):
            raise BackendError("not these")
        self.staged = int(next(iter(attached.tensors()))[1].flatten()[0])

    async def load(self, version: int) -> None:
        assert self.staged is not None
        if self.staged == self.wants.get("refuse"):
            raise BackendError("these weights do not fit")
        self.weights, self.version = self.staged, version
        self.log.append(f"load {version}")

    async def load_adapter(self, folder: Path, version: int) -> None:
        from safetensors.torch import load_file

        self.weights = int(next(iter(load_file(folder / "adapter_model.safetensors").values())).flatten()[0])
        self.version = version

    async def connect(self, route: str, info: dict[str, object]) -> None:
        self.log.append(f"connect {route} {info}")

    async def begin(self) -> None:
        self.log.append("begin")

    async def receive(self, info: dict[str, int]) -> None:
        self.staged = info["value"]
        if self.staged == self.wants.get("refuse"):
            raise BackendError("these weights do not fit")

    async def end(self, version: int) -> None:
        await self.load(version)

    async def resume(self) -> None:
        self.running.set()
        self.log.append("resume")

    async def sleep(self, level: int) -> None:
        self.log.append(f"sleep {level}")

    async def wake_up(self, tags: list[str]) -> None:
        self.log.append(f"wake {' '.join(tags)}")

    async def close(self) -> None:
        self.is_dead = True
        self.running.set()
