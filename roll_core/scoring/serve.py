"""The child's side of the verifier pool: builds verifiers and answers one request at a time.

`main` serves an inherited stream socket. Requests are pickled by the driver (trusted); replies are JSON, so that
nothing a verifier returns is ever unpickled in the driver.

No process needs `__main__` of the driver again, so a script without an `if __name__ == "__main__"` guard is not
executed a second time.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import inspect
import json
import os
import pickle
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path
from typing import Any, Protocol, Self

from roll_core.scoring.channel import Channel
from roll_core.types import Prompt, Rollout, Status, Verdict

MAX_TEXT = 2_000
"""Characters of a verdict's answer and reason that travel back."""
_PR_SET_PDEATHSIG = 1


class VerifierSpec(Protocol):
    """How a verifier is built, in this process or another; pickles small."""

    @property
    def name(self) -> str:
        """Name of the component."""
        ...

    @property
    def version(self) -> str:
        """Version of the distribution it comes from."""
        ...

    def build(self) -> Any:
        """Build the verifier."""
        ...


@dataclass(frozen=True, slots=True)
class VerifyRequest:
    """One response to judge."""

    key: str
    response: str
    reference: Any
    prompt: Prompt | None
    rollout: Rollout | None
    options: Mapping[str, Any]

    def lightened(self) -> Self:
        """A copy without the extra columns of the rollout's segments, which may be large."""
        if self.rollout is None:
            return self
        segments = [replace(segment, columns={}) for segment in self.rollout.segments]
        return replace(self, rollout=replace(self.rollout, segments=segments))


class Bench:
    """The verifiers of one worker, each built once."""

    def __init__(self, builders: Mapping[str, Callable[[], Any]]) -> None:
        self._builders = builders
        self._built: dict[str, Any] = {}

    def build(self, key: str) -> dict[str, Any]:
        """Build a verifier; reply `{"kind": ...}`, or `{"failed": text, "trace": text}`.

        The kind is "sync", "async", or "local" when its definition lies in the driver's main script or session; beside
        it, the verifier's own `deadline_s` (None where it has none).
        """
        try:
            verifier = self._built[key] if key in self._built else self._builders[key]()
            if not callable(getattr(verifier, "verify", None)):
                return {"failed": f"{type(verifier).__name__} has no method 'verify'", "trace": ""}
            kind = "async" if is_async(verifier) else "sync"
            if kind == "sync" and key not in self._built and callable(getattr(verifier, "prepare", None)):
                verifier.prepare()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin may raise anything; it is reported
            if "<module '__main__'" in str(error):  # pickle's words for a name that this process does not have
                return {"kind": "local"}
            return {"failed": describe(error), "trace": traceback.format_exc()}
        self._built[key] = verifier
        return {"kind": kind, "deadline_s": deadline_of(verifier)}

    def verify(self, request: VerifyRequest) -> dict[str, Any]:
        """Judge; reply with the fields of a verdict, whatever the verifier does."""
        started = time.perf_counter()
        try:
            result = self._built[request.key].verify(
                request.response,
                request.reference,
                prompt=request.prompt,
                rollout=request.rollout,
                **request.options,
            )
            if inspect.isawaitable(result):
                result = asyncio.run(_resolve(result))
            reply = encode(checked(result))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a verifier may raise anything; it becomes a verdict
            reply = encode(Verdict.error(describe(error), detail="raised"))
        reply["seconds"] = time.perf_counter() - started
        return reply


def is_async(verifier: Any) -> bool:
    """Whether a verifier runs in an event loop, many verdicts at once."""
    return inspect.iscoroutinefunction(verifier.verify) or bool(getattr(verifier, "is_async", False))


def deadline_of(verifier: Any) -> float | None:
    """Seconds that one verdict may honestly take, where the verifier says so."""
    own = getattr(verifier, "deadline_s", None)
    return None if own is None else float(own)


def checked(result: Any) -> Verdict:
    """The result of a verifier, or an error verdict when it is no well-formed `Verdict`."""
    if not isinstance(result, Verdict):
        return Verdict.error(
            f"returned {type(result).__name__} {_short(repr(result))}, not a Verdict", detail="bad_result"
        )
    texts = (result.detail, result.reason) if result.answer is None else (result.answer, result.detail, result.reason)
    if not all(isinstance(text, str) for text in texts):
        return Verdict.error("returned a Verdict whose answer, detail or reason is no text", detail="bad_result")
    return result


def encode(verdict: Verdict) -> dict[str, Any]:
    """The fields of a verdict as JSON values, long texts cut."""
    answer = None if verdict.answer is None else verdict.answer[:MAX_TEXT]
    score = None if verdict.score is None else float(verdict.score)
    return {
        "status": verdict.status.value,
        "score": score,
        "answer": answer,
        "detail": verdict.detail[:MAX_TEXT],
        "reason": verdict.reason[:MAX_TEXT],
    }


def decode(reply: Mapping[str, Any]) -> Verdict:
    """The verdict that `encode` took apart."""
    return Verdict(Status(reply["status"]), reply["score"], reply["answer"], reply["detail"], reply["reason"])


def _build_pickled(spec: bytes) -> Any:
    return pickle.loads(spec).build()  # noqa: S301 - sent by the driver that started this process


async def _resolve(result: Any) -> Any:
    return await result


def describe(error: BaseException) -> str:
    """The error's type and text, cut."""
    return _short(f"{type(error).__name__}: {error}")


def _short(text: str, limit: int = 500) -> str:
    return text if len(text) <= limit else f"{text[:limit]}..."


# --- the process ------------------------------------------------------------------------------------------------------


def limit_process(memory_gib: float | None) -> None:
    """Bound this process's memory, and offer it first when the machine runs out."""
    if memory_gib is not None:
        import resource

        limit = int(memory_gib * 2**30)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    with contextlib.suppress(OSError):  # not on every kernel; only a preference
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


def serve(channel: Channel) -> None:
    """Answer requests until the driver closes the channel.

    The first message holds the pickled specs by key and the memory limit. The driver enforces deadlines; the kernel's
    alarm (its default action, no handler) only ends an orphan whose driver was killed in the middle of a verdict.
    """
    pickled_specs, memory_gib = pickle.loads(channel.receive())  # noqa: S301 - sent by the driver that started us
    limit_process(memory_gib)
    bench = Bench({key: partial(_build_pickled, spec) for key, spec in pickled_specs.items()})
    channel.send(b'{"ready": true}')
    while True:
        order, argument, limit_s = pickle.loads(channel.receive())  # noqa: S301 - as above
        signal.alarm(ceil(limit_s) + 30)
        reply = bench.build(argument) if order == "build" else bench.verify(argument)
        signal.alarm(0)
        channel.send(json.dumps(reply).encode("ascii"))


def end_with_parent() -> None:
    """Have the kernel kill this process when the lane that started it ends, with its process or before.

    Whoever ended earlier has closed the channel, which ends this process too.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def main(descriptor: int) -> None:
    """Entry point of a worker process."""
    end_with_parent()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.set_inheritable(descriptor, False)
    with contextlib.suppress(EOFError):  # the driver closed its end, or is gone
        serve(Channel(socket.socket(fileno=descriptor)))
    sys.stdout.flush()
    os._exit(0)
