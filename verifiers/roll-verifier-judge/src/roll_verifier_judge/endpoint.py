"""A judge behind an OpenAI-compatible endpoint."""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import ssl
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from roll_core.errors import ConfigError
from roll_verifier_judge.asking import JudgeRejectedError, JudgeUnreachableError, Reply, StructuredRefusedError
from roll_verifier_judge.options import Limits, Sampling
from roll_verifier_judge.pacing import TokenBucket, backoff_s, retry_after_s
from roll_verifier_judge.prompt import Message

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger(__name__)

_MAY_PASS = frozenset({408, 409, 425, 429})
_NO_RESPONSE_FORMAT = frozenset({400, 404, 415, 422, 501})
"""Statuses with which endpoints refuse a response format that they do not know."""
_SHOWN = 300
"""Characters of an endpoint's complaint that are passed on."""


@dataclass(slots=True)
class _Session:
    """What belongs to one event loop."""

    http: httpx2.AsyncClient
    gate: asyncio.Semaphore
    life: AsyncGenerator[httpx2.AsyncClient, None]


class EndpointClient:
    """Chat completions over HTTP.

    Connections belong to an event loop and are made on first use. They are closed by `close`, or else when the loop
    ends (`asyncio.run` shuts down asynchronous generators, one of which holds them). A pickled copy starts anew.

    Args:
        model: its name at the endpoint.
        base_url: up to and including the version ("https://host/v1").
        api_key_env: name of the environment variable with the key, which is read for each request and kept nowhere.
        structured: whether a response format is sent; under "auto" until the endpoint refuses one.
        limits: concurrency, rate, retries.
        extra: members added to every request; None takes one out.

    Raises:
        ConfigError: the environment variable is not set.
    """

    def __init__(
        self,
        *,
        model: str,
        base_url: str,
        api_key_env: str | None,
        structured: Literal["auto", "on", "off"],
        limits: Limits,
        extra: Mapping[str, Any],
    ) -> None:
        self._model = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._api_key_env = api_key_env
        self._structured = structured
        self._limits = limits
        self._extra = dict(extra)
        self._headers()
        self._start()

    def _start(self) -> None:
        self._is_structured = self._structured != "off"
        rate = self._limits.requests_per_minute
        self._bucket = None if rate is None else TokenBucket(rate)
        self._sessions: dict[asyncio.AbstractEventLoop, _Session] = {}

    def __getstate__(self) -> dict[str, Any]:
        left_out = ("_bucket", "_sessions", "_is_structured")
        return {name: value for name, value in self.__dict__.items() if name not in left_out}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    @property
    def is_structured(self) -> bool:
        """Whether requests carry a response format."""
        return self._is_structured

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, schema: Mapping[str, Any] | None
    ) -> Reply:
        """Answer one request.

        Raises:
            JudgeUnreachableError: no usable answer after all tries.
            JudgeRejectedError: the endpoint turned the request down for good.
            StructuredRefusedError: it turned it down while it carried a response format; later ones will not.
        """
        body = self._body(messages, sampling, schema)
        session = await self._session()
        problem = ""
        for attempt in range(self._limits.retries + 1):
            if self._bucket is not None:
                await asyncio.sleep(self._bucket.reserve())
            pause = None
            async with session.gate:
                answer = await self._send(session.http, body)
            if isinstance(answer, str):
                problem = answer
            elif answer.status_code == 200:
                reply = _reply(answer)
                if reply is not None:
                    return reply
                problem = f"an answer that is no chat completion: {answer.text[:_SHOWN]!r}"
            else:
                problem = f"status {answer.status_code}: {answer.text[:_SHOWN]!r}"
                self._check_final(answer.status_code, problem, is_structured="response_format" in body)
                pause = retry_after_s(answer.headers.get("retry-after"))
            if attempt < self._limits.retries:
                await self._pause(attempt, pause, problem)
        raise JudgeUnreachableError(f"{self._url} gave no answer in {self._limits.retries + 1} tries; last: {problem}")

    async def close(self) -> None:
        """Close this loop's connections; a later request opens new ones."""
        session = self._sessions.pop(asyncio.get_running_loop(), None)
        if session is not None:
            await session.life.aclose()

    # --- one request ---

    def _body(
        self, messages: Sequence[Message], sampling: Sampling, schema: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [dict(message) for message in messages],
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "max_tokens": sampling.max_tokens,
            "seed": sampling.seed,
        }
        if schema is not None and self._is_structured:
            named = {"name": "verdict", "strict": True, "schema": dict(schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        return {name: value for name, value in {**body, **self._extra}.items() if value is not None}

    def _headers(self) -> dict[str, str]:
        if self._api_key_env is None:
            return {}
        key = os.environ.get(self._api_key_env)
        if not key:
            raise ConfigError(
                f"environment variable {self._api_key_env} (api_key_env of the judge) is not set: export the "
                "endpoint's key under that name"
            )
        return {"Authorization": f"Bearer {key}"}

    async def _send(self, http: httpx2.AsyncClient, body: Mapping[str, Any]) -> httpx2.Response | str:
        """The response, or in words why there is none."""
        import httpx2

        try:
            async with asyncio.timeout(self._limits.timeout_s):
                return await http.post(self._url, json=body, headers=self._headers())
        except TimeoutError:
            return f"no answer within {self._limits.timeout_s:g} s"
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            return f"{type(error).__name__}: {error}"

    def _check_final(self, status: int, problem: str, *, is_structured: bool) -> None:
        """Raise where another try would not help."""
        if status in _MAY_PASS or (status >= 500 and status != 501):
            return
        if is_structured and self._structured == "auto" and status in _NO_RESPONSE_FORMAT:
            if self._is_structured:
                logger.info("judge at %s refused a response format, free text is read from now on", self._url)
            self._is_structured = False
            raise StructuredRefusedError(problem)
        raise JudgeRejectedError(f"{self._url} turned the request down: {problem}")

    async def _pause(self, attempt: int, asked_for: float | None, problem: str) -> None:
        most = self._limits.max_wait_s
        if asked_for is not None and asked_for > most:
            raise JudgeUnreachableError(
                f"{self._url} asks for a pause of {asked_for:g} s, more than limits.max_wait_s = {most:g}; {problem}"
            )
        pause = backoff_s(attempt, most)
        await asyncio.sleep(pause if asked_for is None else max(pause, asked_for))

    # --- connections ---

    async def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in self._sessions:
            _forget_ended(self._sessions)
            life = _client_life(self._limits)
            http = await anext(life)
            if loop in self._sessions:  # another request of this loop was faster
                await life.aclose()
            else:
                self._sessions[loop] = _Session(http, asyncio.Semaphore(self._limits.concurrency), life)
                _forget_ended(_LIVES)
                _LIVES.setdefault(loop, []).append(life)
        return self._sessions[loop]


_LIVES: dict[asyncio.AbstractEventLoop, list[AsyncGenerator[httpx2.AsyncClient, None]]] = {}
"""What loops close at their end. Held here, so that a client which is dropped before does not take it along: a
generator that is collected while its loop ends is not closed."""


def _forget_ended(by_loop: dict[asyncio.AbstractEventLoop, Any]) -> None:
    for loop in tuple(by_loop):
        if loop.is_closed():
            by_loop.pop(loop, None)


@functools.cache
def _tls() -> ssl.SSLContext:
    """One for all clients, since reading the certificates takes a while."""
    import httpx2

    return httpx2.create_ssl_context()


async def _client_life(limits: Limits) -> AsyncGenerator[httpx2.AsyncClient, None]:
    """Hold an HTTP client open until the generator is closed, at the latest by the end of its event loop."""
    import httpx2

    pool = httpx2.Limits(max_connections=limits.concurrency, max_keepalive_connections=limits.concurrency)
    async with httpx2.AsyncClient(timeout=limits.timeout_s, limits=pool, verify=_tls()) as http:
        yield http


def _reply(answer: httpx2.Response) -> Reply | None:
    """The first choice of a chat completion; None when the answer is something else."""
    try:
        choice = answer.json()["choices"][0]
        message = choice["message"]
        content, refusal = message.get("content"), message.get("refusal")
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    if refusal:
        return Reply(str(refusal), "refusal")
    if content is not None and not isinstance(content, str):
        return None
    return Reply(content or "", "length" if choice.get("finish_reason") == "length" else "stop")
