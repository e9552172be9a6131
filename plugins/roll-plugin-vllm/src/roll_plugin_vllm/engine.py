"""What generates inside a replica, in the few verbs that the replica needs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from roll_plugin_vllm.asks import Ask, Facts, Piece
from roll_plugin_vllm.segment import Shipment


class Engine(Protocol):
    """One engine. Coroutines run on the replica's event loop."""

    facts: Facts

    def stream(self, ask: Ask) -> AsyncIterator[Piece]:
        """Pieces as they are made; the last one has a finish reason and exact spans."""
        ...

    async def abort(self, key: str) -> None:
        """Let the stream of an ask end with reason "abort"."""
        ...

    async def stage(self, shipment: Shipment) -> None:
        """Map and verify new weights; nothing changes yet."""
        ...

    async def pause(self) -> None:
        """Let no step begin. Requests are kept; their keys and values are computed anew afterwards."""
        ...

    async def load(self, version: int) -> None:
        """While paused: take the staged weights over, wholly or not at all; tokens carry `version` from then on."""
        ...

    async def load_adapter(self, folder: Path, version: int) -> None:
        """While paused: take the policy's adapter over; tokens carry `version` from then on."""
        ...

    async def connect(self, route: str, info: Mapping[str, Any]) -> None:
        """Meet the trainer, so that weights can come directly."""
        ...

    async def begin(self) -> None:
        """While paused: direct weights are about to come."""
        ...

    async def receive(self, info: Mapping[str, Any]) -> None:
        """While paused: receive direct weights, or a part of them, and load them."""
        ...

    async def end(self, version: int) -> None:
        """While paused: direct weights are complete; tokens carry `version` from then on."""
        ...

    async def resume(self) -> None:
        """Generate again."""
        ...

    async def sleep(self, level: int) -> None:
        """Give device memory up; level 2 forgets the weights too."""
        ...

    async def wake_up(self, tags: list[str]) -> None:
        """Take "weights" or "kv_cache" memory back."""
        ...

    async def close(self) -> None:
        """End it, with its processes."""
        ...
