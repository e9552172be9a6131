"""`load_verifier`: any installed verifier as a plain callable, without a run."""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from roll_core.plugin.discovery import SELECT_VARIABLE
from roll_core.plugin.host import Host
from roll_core.plugin.lift import as_verdict

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from roll_core.contracts import Verifier
    from roll_core.types import Prompt, Rollout, Verdict


class LoadedVerifier:
    """A verifier that is called like a function, sync or async inside alike.

    It has no deadline of its own: a verifier that hangs hangs the caller (the scoring pool of a run kills it).
    """

    def __init__(self, verifier: Verifier, name: str, version: str) -> None:
        self.verifier = verifier
        """The component itself."""
        self.name = name
        self.version = version

    def __call__(self, response: str, reference: Any = None, **options: Any) -> Verdict:
        """Judge `response` against `reference`; see `verify`."""
        return self.verify(response, reference, **options)

    def verify(
        self,
        response: str,
        reference: Any = None,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
        **options: Any,
    ) -> Verdict:
        """Judge `response` against `reference`.

        Args:
            response: the policy's text.
            reference: what the verifier compares with.
            prompt: the task, for verifiers that read it.
            rollout: the whole interaction, for verifiers that read it.
            options: the verifier's options of a single call.

        Returns:
            The verdict, with the verifier's name, version and the seconds taken.
        """
        start = time.perf_counter()
        result = self.verifier.verify(response, reference, prompt=prompt, rollout=rollout, **options)
        verdict = as_verdict(_wait(result) if inspect.isawaitable(result) else result)
        return verdict.stamped(verifier=self.name, version=self.version, seconds=time.perf_counter() - start)

    def __repr__(self) -> str:
        return f"<verifier {self.name} {self.version}>"


def load_verifier(name: str, /, **config: Any) -> LoadedVerifier:
    """Load an installed verifier by name.

        judge = load_verifier("math")
        judge("the answer is 4", "4").score

    Plugins are discovered once per process, and again when `ROLL_PLUGINS` changes.

    Args:
        name: the verifier's name, or `owner/name`.
        config: its options.

    Raises:
        UnknownNameError: no such verifier is installed.
        ConfigError: the options do not fit it.
        PluginError: its plugin failed to load.
    """
    host = _host(os.environ.get(SELECT_VARIABLE, ""))
    verifier = host.build("verifiers", name, config, place="")
    return LoadedVerifier(verifier, name.rpartition("/")[2], host.version_of("verifiers", name))


@lru_cache(maxsize=1)
def _host(select: str) -> Host:
    return Host.discover(select=select)


def _wait(result: Awaitable[Any]) -> Any:
    """Run an awaitable to its end, also where an event loop is running already (a notebook)."""

    async def run() -> Any:
        return await result

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(run())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, run()).result()
