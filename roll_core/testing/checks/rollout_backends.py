"""Checks of `contracts.RolloutBackend`, on a tiny random model."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from roll_core.contracts import RolloutBackend, TensorInfo
from roll_core.testing.context import tiny_model
from roll_core.testing.kit import CheckFailed, Subject, check
from roll_core.types import Completion, GenerateRequest, SamplingParams

if TYPE_CHECKING:
    from torch import Tensor

_LIMIT_S = 120.0
_PROMPT = (1, 20, 11, 25, 12, 2)
_NEEDS = ("torch", "transformers")


def _request(name: str = "r", seed: int = 0, **sampling: Any) -> GenerateRequest:
    return GenerateRequest(_PROMPT, SamplingParams(**{"max_new_tokens": 12, **sampling}), seed, name)


def _with_backend(subject: Subject, body: Callable[[RolloutBackend], Awaitable[None]]) -> None:
    async def run() -> None:
        backend = subject.build()
        try:
            await asyncio.wait_for(body(backend), _LIMIT_S)
        except TimeoutError:
            raise CheckFailed(f"no answer within {_LIMIT_S:g} s") from None
        finally:
            await backend.close()

    asyncio.run(run())


class FolderWeights:
    """A weight source that publishes the tensors of a model folder."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM

        self._state = AutoModelForCausalLM.from_pretrained(folder).state_dict()

    def manifest(self) -> Sequence[TensorInfo]:
        """Names, dtypes and shapes."""
        return [TensorInfo(n, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for n, t in self._state.items()]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors, in the order of the manifest."""
        yield from self._state.items()


@check("rollout_backends", needs=_NEEDS)
def aligns_tokens_and_logprobs(subject: Subject) -> None:
    """Each token has a finite log-prob of at most 0 and a policy version; nothing overruns the limit."""

    async def body(backend: RolloutBackend) -> None:
        for done in await asyncio.gather(*(backend.generate(_request(f"r{i}", seed=i)) for i in range(4))):
            n = len(done.token_ids)
            if len(done.logprobs) != n or not 0 < n <= 12:
                raise CheckFailed(f"{n} tokens came with {len(done.logprobs)} log-probs; the limit was 12")
            if not np.isfinite(done.logprobs).all() or (done.logprobs > 1e-6).any():
                raise CheckFailed(f"log-probs must be finite and at most 0, got {done.logprobs}")
            covered = [t for run in done.versions for t in range(run.start, run.stop)]
            if covered != list(range(n)):
                raise CheckFailed(f"the version runs cover tokens {covered} of {n}")

    _with_backend(subject, body)


@check("rollout_backends", needs=_NEEDS)
def reports_the_models_logprobs(subject: Subject) -> None:
    """At temperature 1 the log-probs are those of the model's softmax."""
    import torch
    from transformers import AutoModelForCausalLM

    async def body(backend: RolloutBackend) -> None:
        done = await backend.generate(_request())
        tokens = torch.tensor([[*_PROMPT, *done.token_ids.tolist()]])
        with torch.no_grad():
            logits = AutoModelForCausalLM.from_pretrained(tiny_model(0)).float()(tokens).logits[0]
        expected = torch.log_softmax(logits[:-1], -1).gather(1, tokens[0, 1:, None])[len(_PROMPT) - 1 :, 0].numpy()
        worst = float(np.abs(expected - done.logprobs).max())
        if worst > 0.05:
            raise CheckFailed(f"log-probs are off the model's by {worst:.3f}: report the sampled distribution's")

    _with_backend(subject, body)


@check("rollout_backends", needs=_NEEDS)
def reproduces_from_its_seed(subject: Subject) -> None:
    """One seed gives the same tokens again; different seeds differ."""

    async def body(backend: RolloutBackend) -> None:
        once = [await backend.generate(_request(f"a{i}", seed=i)) for i in range(4)]
        again = [await backend.generate(_request(f"b{i}", seed=i)) for i in range(4)]
        for a, b in zip(once, again, strict=True):
            if a.token_ids.tolist() != b.token_ids.tolist():
                raise CheckFailed("the same seed gave other tokens: key the random stream by the request's seed")
        if len({tuple(c.token_ids.tolist()) for c in once}) == 1:
            raise CheckFailed("four seeds gave the same tokens: the seed is not used")

    _with_backend(subject, body)


@check("rollout_backends", needs=_NEEDS)
def sets_finish_reasons(subject: Subject) -> None:
    """The reason is "length" at the token limit and "stop" at a stop token, which is part of the answer."""

    async def body(backend: RolloutBackend) -> None:
        greedy = await backend.generate(_request("g", temperature=0.0, max_new_tokens=4))
        _expect(greedy, "length", 4)
        first = int(greedy.token_ids[0])
        stopped = await backend.generate(_request("s", temperature=0.0, stop_token_ids=(first,)))
        _expect(stopped, "stop", 1)
        if int(stopped.token_ids[-1]) != first:
            raise CheckFailed("the stop token is not in token_ids: the policy sampled it and is trained on it")

    _with_backend(subject, body)


def _expect(done: Completion, reason: str, count: int) -> None:
    if done.finish_reason != reason or len(done.token_ids) != count:
        raise CheckFailed(
            f"expected {count} tokens and '{reason}', got {len(done.token_ids)} and '{done.finish_reason}'"
        )


@check("rollout_backends", needs=_NEEDS)
def takes_over_weights(subject: Subject) -> None:
    """`sync_weights` raises the version, changes the output, and tokens carry the new version."""

    async def body(backend: RolloutBackend) -> None:
        before = await backend.generate(_request("before", temperature=0.0))
        version = backend.policy_version + 1
        backend.sync_weights(FolderWeights(tiny_model(1)), version)
        if backend.policy_version != version:
            raise CheckFailed(f"policy_version is {backend.policy_version} after a sync to {version}")
        after = await backend.generate(_request("after", temperature=0.0))
        if {run.policy.version for run in after.versions} != {version}:
            raise CheckFailed(f"tokens made after the sync carry {after.versions}, not version {version}")
        n = min(len(before.logprobs), len(after.logprobs))
        if np.allclose(before.logprobs[:n], after.logprobs[:n], atol=1e-4):
            raise CheckFailed("other weights gave the same log-probs: the sync changed nothing")

    _with_backend(subject, body)


@check("rollout_backends", needs=_NEEDS)
def returns_on_abort(subject: Subject) -> None:
    """An aborted request returns what it has, with finish reason "abort"; others and unknown ids are left alone."""

    async def body(backend: RolloutBackend) -> None:
        request = _request("long", max_new_tokens=400)
        task = asyncio.ensure_future(backend.generate(request))
        other = asyncio.ensure_future(backend.generate(_request("other", seed=3)))
        await asyncio.sleep(0.01)
        backend.abort("long")
        backend.abort("nobody")
        done = await task
        if done.finish_reason != "abort" or not len(done.token_ids) == len(done.logprobs) < 400:
            raise CheckFailed(f"an aborted request ended with '{done.finish_reason}' and {len(done.token_ids)} tokens")
        if (await other).finish_reason == "abort":
            raise CheckFailed("aborting one request aborted another")

    _with_backend(subject, body)


@check("rollout_backends", needs=_NEEDS)
def survives_cancelling(subject: Subject) -> None:
    """Cancelling a call frees its slot, and the backend goes on."""

    async def body(backend: RolloutBackend) -> None:
        task = asyncio.ensure_future(backend.generate(_request("gone", max_new_tokens=400)))
        await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        _expect(await backend.generate(_request("next", temperature=0.0, max_new_tokens=2)), "length", 2)

    _with_backend(subject, body)


@check("rollout_backends", needs=_NEEDS)
def resumes_from_a_prefix(subject: Subject) -> None:
    """Sending the tokens made so far back gives the rest of the same answer."""

    async def body(backend: RolloutBackend) -> None:
        whole = await backend.generate(_request("whole", seed=5))
        head = tuple(int(t) for t in whole.token_ids[: len(whole.token_ids) // 2])
        rest = await backend.generate(replace(_request("rest", seed=5), prefix_ids=head))
        if [*head, *rest.token_ids.tolist()] != whole.token_ids.tolist():
            raise CheckFailed("prefix and rest differ from the whole: draw on from position len(prefix_ids)")
        if not math.isclose(float(rest.logprobs[-1]), float(whole.logprobs[-1]), abs_tol=1e-2):
            raise CheckFailed("after a prefix the log-probs differ")

    _with_backend(subject, body)
