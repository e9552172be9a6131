"""A gate before the backend: generation can be halted, tokens kept, and go on later, here or after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from roll_core.contracts import RolloutBackend
from roll_core.types import AnyArray, Completion, GenerateRequest


class Gate:
    """Generates through a backend and remembers, per request, the tokens made so far.

    While the gate is closed no request is with the backend. A request that goes on sends its tokens back as
    `prefix_ids`, so its random stream goes on where it stopped.

    Args:
        backend: generates.
    """

    def __init__(self, backend: RolloutBackend) -> None:
        self._backend = backend
        self._opened = asyncio.Event()
        self._opened.set()
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._running: set[str] = set()
        self._given_up: set[str] = set()
        self._made: dict[str, Completion] = {}

    @property
    def running(self) -> int:
        """Requests that are with the backend now."""
        return len(self._running)

    @property
    def made(self) -> Mapping[str, Completion]:
        """Completions of the requests that are not forgotten, by request id; finish reason "abort" where unfinished."""
        return self._made

    async def generate(self, request: GenerateRequest) -> Completion:
        """`backend.generate`, over as many turns as the gate's closings ask for."""
        key = request.request_id
        while key not in self._made or self._made[key].finish_reason == "abort":
            await self._opened.wait()
            if key in self._given_up:
                self._made.setdefault(key, _nothing(key))
                break
            piece = await self._turn(request, self._made.get(key))
            self._made[key] = joined(self._made.get(key), piece)
            if key in self._given_up or (piece.finish_reason == "abort" and self._opened.is_set()):
                break
        self._given_up.discard(key)
        return self._made[key]

    def abort(self, request_id: str) -> None:
        """End a request for good; its `generate` returns the tokens made so far."""
        self._given_up.add(request_id)
        self._backend.abort(request_id)

    async def close(self) -> None:
        """Take every request back from the backend; returns when none is with it any more."""
        self._opened.clear()
        for request_id in tuple(self._running):
            self._backend.abort(request_id)
        await self._quiet.wait()

    def open(self) -> None:
        """Let requests go on."""
        self._opened.set()

    def restore(self, made: Mapping[str, Completion]) -> None:
        """Requests with these ids will go on from what they had."""
        self._made.update(made)

    def forget(self, request_ids: Iterable[str]) -> None:
        """Drop what is remembered of requests whose group has ended."""
        for request_id in request_ids:
            self._made.pop(request_id, None)
            self._given_up.discard(request_id)

    async def _turn(self, request: GenerateRequest, before: Completion | None) -> Completion:
        resumed = request if before is None else replace(request, prefix_ids=tuple(before.token_ids.tolist()))
        self._running.add(request.request_id)
        self._quiet.clear()
        try:
            return await self._backend.generate(resumed)
        finally:
            self._running.discard(request.request_id)
            if not self._running:
                self._quiet.set()


def _nothing(request_id: str) -> Completion:
    """The completion of a request that was given up before its first token."""
    return Completion(request_id, np.zeros(0, np.int32), np.zeros(0, np.float32), (), "abort")


def joined(before: Completion | None, piece: Completion) -> Completion:
    """One completion out of two consecutive pieces of the same request."""
    if before is None:
        return piece
    offset = len(before.token_ids)
    later = tuple(replace(run, start=run.start + offset, stop=run.stop + offset) for run in piece.versions)
    return replace(
        piece,
        token_ids=np.concatenate([before.token_ids, piece.token_ids]),
        logprobs=np.concatenate([before.logprobs, piece.logprobs]),
        versions=(*before.versions, *later),
        columns={name: _joined_column(name, before, piece) for name in {*before.columns, *piece.columns}},
    )


def _joined_column(name: str, before: Completion, piece: Completion) -> AnyArray:
    """A column over both pieces; a piece without it counts as zeros (`keep_ids` is ragged: it has nothing there)."""
    parts = [_column_of(name, one, other) for one, other in ((before, piece), (piece, before))]
    return np.concatenate(parts)


def _column_of(name: str, one: Completion, other: Completion) -> AnyArray:
    if name in one.columns:
        return one.columns[name]
    like = other.columns[name]
    return np.zeros((0 if name == "keep_ids" else len(one.token_ids), *like.shape[1:]), like.dtype)
