"""One request on its way, over as many replicas as it takes."""

from __future__ import annotations

import itertools
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from roll_core.types import AnyArray, Completion, FinishReason, GenerateRequest, IntArray, PolicyRef, VersionRun
from roll_plugin_vllm.asks import Ask, Piece

_numbers = itertools.count()


@dataclass(slots=True, eq=False)
class Flight:
    """What a request has brought so far. Whoever changes it holds the fleet's lock."""

    request: GenerateRequest
    seed: int
    limit: int
    """New tokens allowed in all."""
    future: Future[Completion] = field(default_factory=Future)
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    kept: list[IntArray] = field(default_factory=list)
    key: str = ""
    """Of the present attempt; never used twice, so that pieces of earlier ones are recognised by theirs."""
    replica: str = ""
    cost: int = 0
    """What the router counts for it."""
    is_aborted: bool = False
    is_stopped: bool = False
    """A stop string is in the response."""
    _base: int = 0
    """Tokens made before the present attempt."""

    @property
    def remaining(self) -> int:
        """New tokens still allowed."""
        return self.limit - len(self.tokens)

    def ended(self) -> FinishReason | None:
        """Why nothing is left to be done, if so; asked before another attempt."""
        if self.is_stopped or (self.tokens and self.tokens[-1] in self.request.sampling.stop_token_ids):
            return "stop"
        if self.remaining <= 0:
            return "length"
        return "abort" if self.is_aborted else None

    def end(self, reason: FinishReason) -> None:
        """Hand the result out, unless nobody waits any more."""
        with suppress(InvalidStateError):
            self.future.set_result(self.completion(reason))

    def fail(self, error: Exception) -> None:
        """Hand an error out, unless nobody waits any more."""
        with suppress(InvalidStateError):
            self.future.set_exception(error)

    def next_ask(self) -> Ask:
        """Begin another attempt, from the tokens made so far."""
        self.key = f"{self.request.request_id}#{next(_numbers)}"
        self._base = len(self.tokens)
        request, sampling = self.request, self.request.sampling
        return Ask(
            key=self.key,
            token_ids=(*request.token_ids, *request.prefix_ids, *self.tokens),
            prompt_length=len(request.token_ids),
            limit=self.remaining,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            seed=self.seed,
            stop_token_ids=sampling.stop_token_ids,
            stop=sampling.stop,
            adapter=request.policy.adapter if request.policy else None,
        )

    def take(self, piece: Piece) -> None:
        """Add a piece of the present attempt."""
        self.tokens += piece.tokens
        self.logprobs += piece.logprobs
        self.versions += [piece.version] * len(piece.tokens)
        self.kept += piece.kept or ()
        self.is_stopped |= piece.is_stopped
        for span in piece.spans:
            start, stop = self._base + span.start, self._base + span.stop
            self.versions[start:stop] = [span.version] * (stop - start)

    def completion(self, reason: FinishReason) -> Completion:
        """The result."""
        return Completion(
            request_id=self.request.request_id,
            token_ids=np.asarray(self.tokens, dtype=np.int32),
            logprobs=np.asarray(self.logprobs, dtype=np.float32),
            versions=self._version_runs(),
            finish_reason=reason,
            columns=self._columns(),
        )

    def _version_runs(self) -> tuple[VersionRun, ...]:
        policy = self.request.policy
        model, adapter = (policy.model, policy.adapter) if policy else ("policy", None)
        runs: list[VersionRun] = []
        start = 0
        for version, same in itertools.groupby(self.versions):
            stop = start + len(list(same))
            runs.append(VersionRun(start, stop, PolicyRef(version, model, adapter)))
            start = stop
        return tuple(runs)

    def _columns(self) -> dict[str, AnyArray]:
        if not self.request.sampling.is_truncated:
            return {}
        counts = np.asarray([len(kept) for kept in self.kept], dtype=np.int32)
        return {"keep_counts": counts, "keep_ids": np.concatenate([np.empty(0, np.int32), *self.kept])}
