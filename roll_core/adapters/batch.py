"""Verdicts for a caller that knows nothing of event loops: worker processes with deadlines behind plain calls."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from roll_core.errors import ConfigError
from roll_core.plugin.discovery import SELECT_VARIABLE
from roll_core.plugin.host import Host
from roll_core.scoring import VerifierPool
from roll_core.types import Prompt, Status, Verdict

T = TypeVar("T")
_Row = tuple[str, Any, Prompt | None, Mapping[str, Any]]


class BatchVerifier:
    """Installed verifiers behind plain, blocking calls, from any thread.

    The workers start with the first call and are shared by all threads of a process. A copy in another process
    (pickled, or after a fork) starts its own.

    Args:
        verifiers: by key, a verifier's name, `{"use": name, option: value, ...}`, or an object, class or function.
        workers: verifier processes; 0 judges in a thread of this process, without a deadline that can be enforced.
        timeout_s: seconds one verdict may take.
        retries: how often a verdict with status `ERROR` (the machinery failed) is asked for again.

    Raises:
        ConfigError: there is no such verifier, or its options do not fit.
    """

    def __init__(self, verifiers: Mapping[str, Any], *, workers: int, timeout_s: float, retries: int) -> None:
        self._workers, self._timeout_s, self._retries = workers, timeout_s, retries
        host = Host.discover(select=os.environ.get(SELECT_VARIABLE, ""))
        self._specs = {key: host.spec("verifiers", *_use_of(use)) for key, use in verifiers.items()}
        self._lock = threading.Lock()
        self._engine: _Engine | None = None
        self._pid = os.getpid()

    @property
    def keys(self) -> tuple[str, ...]:
        """Keys of the verifiers."""
        return tuple(self._specs)

    def name(self, key: str) -> str:
        """The verifier's name under a key."""
        return self._specs[key].name

    def verdicts(
        self,
        key: str,
        responses: Sequence[str],
        references: Sequence[Any],
        *,
        prompts: Sequence[Prompt | None] | None = None,
        options: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[Verdict]:
        """Judge many responses, in parallel, and return their verdicts in order."""
        count = len(responses)
        rows = list(zip(responses, references, prompts or [None] * count, options or [{}] * count, strict=True))
        engine = self._open()
        return engine.run(self._gather(engine.pool, key, rows))

    def close(self) -> None:
        """End the workers; a later call starts new ones."""
        with self._lock:
            engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_engine", "_lock", "_pid")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_over()

    def _start_over(self) -> None:
        self._engine = None
        self._lock = threading.Lock()
        self._pid = os.getpid()

    def _open(self) -> _Engine:
        if self._pid != os.getpid():  # forked: the loop's thread and the workers stayed with the parent
            self._start_over()
        with self._lock:
            if self._engine is None:
                self._engine = _Engine(VerifierPool(self._specs, workers=self._workers, timeout_s=self._timeout_s))
            return self._engine

    async def _gather(self, pool: VerifierPool, key: str, rows: Iterable[_Row]) -> list[Verdict]:
        return list(await asyncio.gather(*(self._judge(pool, key, row) for row in rows)))

    async def _judge(self, pool: VerifierPool, key: str, row: _Row) -> Verdict:
        response, reference, prompt, options = row
        verdict = await pool.verify(key, response, reference, prompt=prompt, **options)
        for _ in range(self._retries):
            if verdict.status is not Status.ERROR:
                break
            verdict = await pool.verify(key, response, reference, prompt=prompt, **options)
        return verdict


class _Engine:
    """An open pool and the event loop it lives in, on a thread of its own."""

    def __init__(self, pool: VerifierPool) -> None:
        self.pool = pool
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="roll-batch-verifier", daemon=True)
        self._thread.start()
        try:
            self.run(pool.start())
        except BaseException:
            self._end()
            raise

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """End the workers, the loop and its thread."""
        self.run(self.pool.close())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _use_of(use: Any) -> tuple[Any, dict[str, Any]]:
    if not isinstance(use, Mapping):
        return use, {}
    options = dict(use)
    if "use" not in options:
        raise ConfigError(f"a verifier is a name or {{'use': name, option: value}}, got {use!r:.200}")
    return options.pop("use"), options


def text_of(completion: Any) -> str:
    """A completion as text: itself, or the content of its last assistant message.

    Raises:
        TypeError: neither text nor messages.
    """
    if isinstance(completion, str):
        return completion
    if isinstance(completion, Sequence):
        for message in reversed(completion):
            if isinstance(message, Mapping) and message.get("role") == "assistant":
                return _content(message.get("content"))
        return ""
    raise TypeError(f"a completion is text or a list of messages, got {type(completion).__name__}")


def _content(content: Any) -> str:
    """The text of a message, whose content may be a list of typed parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content if part.get("type") == "text")
