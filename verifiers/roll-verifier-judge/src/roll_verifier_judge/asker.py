"""Asking the judge until it gives a verdict, and the record of how it was asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from roll_verifier_judge.asking import Client, JudgeError, Reply, StructuredRefusedError
from roll_verifier_judge.cache import ReplyCache
from roll_verifier_judge.endpoint import EndpointClient
from roll_verifier_judge.local import LocalClient
from roll_verifier_judge.options import AskOptions, Sampling
from roll_verifier_judge.parse import Parsed, parse_reply
from roll_verifier_judge.prompt import (
    NO_NONCE,
    Message,
    Part,
    canonical,
    messages_of,
    new_nonce,
    reply_format,
    short_hash,
)
from roll_verifier_judge.scales import Scale, schema_of

AGAIN_TEMPERATURE = 0.5
"""Temperature of further attempts where the first one was greedy."""
CACHE_FORMAT = 1
"""Part of every cache key; raised when the meaning of a kept reply changes."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked: how to judge, the data, and the form of the verdict."""

    instructions: str
    parts: tuple[Part, ...]
    scale: Scale


@dataclass(frozen=True, slots=True)
class Answer:
    """The judge's verdict; or, as `failure`, the word for why there is none."""

    value: Any = None
    failure: str = ""
    problem: str = ""
    record: str = ""
    """Model, prompt and sampling, as `key=value` words."""


class Asker:
    """One judge: its client, its cache, and how often it is asked.

    Raises:
        ConfigError: the key's environment variable is not set.
    """

    def __init__(self, options: AskOptions) -> None:
        self._options = options
        self._client = _client_of(options)
        self._cache = None if options.cache is None else ReplyCache(options.cache)

    async def ask(self, request: Request, *, is_control: bool = False) -> Answer:
        """Ask until a reply holds a verdict, at most `attempts` times.

        A reply from the cache is taken at the first attempt only, and for controls never: they test the judge of now.
        """
        problem = record = ""
        for attempt in range(self._options.attempts):
            sampling = self._sampling(attempt)
            is_cached = self._cache is not None and attempt == 0 and not is_control
            record = self.record(request, sampling, attempt + 1)
            try:
                reply = await self._reply(request, sampling, is_cached=is_cached)
            except JudgeError as error:
                return Answer(failure=error.detail, problem=str(error), record=record)
            parsed = _parsed(reply, request.scale)
            if parsed.is_ok:
                if self._cache is not None and not is_control and not isinstance(reply, _Kept):
                    await self._cache.put(self._key(request, sampling), reply.text)
                return Answer(parsed.value, record=record)
            problem = f"{parsed.reason}: {reply.text[-200:]!r}"
        problem = f"no verdict in {self._options.attempts} replies; last: {problem}"
        return Answer(failure="judge_invalid", problem=problem, record=record)

    def record(self, request: Request, sampling: Sampling | None = None, attempts: int = 0) -> str:
        """How `request` is (or would be) asked, as `key=value` words; the prompt's hash leaves the data out."""
        sampling = sampling or self._options.sampling
        skeleton = self._messages(request, (), NO_NONCE)
        return (
            f"model={self._options.model} prompt={short_hash(skeleton)} temperature={sampling.temperature:g} "
            f"top_p={sampling.top_p:g} max_tokens={sampling.max_tokens} seed={sampling.seed} attempts={attempts}"
        )

    async def close(self) -> None:
        """Free connections or the model; a later question makes them anew."""
        await self._client.close()

    # --- one reply ---

    async def _reply(self, request: Request, sampling: Sampling, *, is_cached: bool) -> Reply:
        if is_cached and self._cache is not None:
            kept = await self._cache.get(self._key(request, sampling))
            if kept is not None and parse_reply(kept, request.scale).is_ok:
                return _Kept(kept)
        try:
            return await self._complete(request, sampling)
        except StructuredRefusedError:
            return await self._complete(request, sampling)

    async def _complete(self, request: Request, sampling: Sampling) -> Reply:
        nonce = new_nonce([part.text for part in request.parts])
        messages = self._messages(request, request.parts, nonce)
        return await self._client.complete(messages, sampling, schema_of(request.scale))

    def _messages(self, request: Request, parts: tuple[Part, ...], nonce: str) -> list[Message]:
        form = reply_format(request.scale, is_structured=self._client.is_structured)
        return messages_of(request.instructions, form, parts, nonce)

    def _key(self, request: Request, sampling: Sampling) -> str:
        options = self._options
        place = options.base_url or [options.backend, options.backend_options]
        messages = self._messages(request, request.parts, NO_NONCE)
        schema = schema_of(request.scale) if self._client.is_structured else None
        how = [sampling.model_dump(), options.extra, schema]
        return canonical([CACHE_FORMAT, options.model, place, messages, how])

    def _sampling(self, attempt: int) -> Sampling:
        first = self._options.sampling
        if attempt == 0:
            return first
        temperature = first.temperature or AGAIN_TEMPERATURE
        return first.model_copy(update={"temperature": temperature, "seed": first.seed + attempt})


class _Kept(Reply):
    """A reply out of the cache."""


def _parsed(reply: Reply, scale: Scale) -> Parsed:
    if reply.finish != "stop":
        return Parsed("invalid", reason="cut_off" if reply.finish == "length" else "refusal")
    return parse_reply(reply.text, scale)


def _client_of(options: AskOptions) -> Client:
    if options.base_url is None:
        return LocalClient(model=options.model, backend=options.backend, options=options.backend_options)
    return EndpointClient(
        model=options.model,
        base_url=options.base_url,
        api_key_env=options.api_key_env,
        structured=options.structured,
        limits=options.limits,
        extra=options.extra,
    )
