"""Runs a component in a process of its own, with a hard limit on every answer.

The child is a fresh interpreter (no fork), so what it imports is exactly what the component imports, and a hang or a
crash of the component cannot take the test run along.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

START_S = 120.0
"""Seconds a child may take to start and to build its component (heavy imports on a busy machine)."""
HEAVY = ("torch", "jax", "tensorflow", "transformers", "ray", "vllm")
"""Packages a verifier must not import."""


class ChildTimeoutError(Exception):
    """An answer took longer than its limit; the child was killed."""


class ChildCrashedError(Exception):
    """The child ended before it had answered."""


@contextmanager
def answers(job: str, argument: Any, *, limit_s: float) -> Iterator[Iterator[Any]]:
    """Run one of this module's jobs in a child process and iterate over its answers.

    Args:
        job: name of a generator function of this module.
        argument: what it is called with; pickled.
        limit_s: seconds from one answer to the next. The first answer, "ready", has `START_S`.

    Raises:
        ChildTimeoutError: an answer is late.
        ChildCrashedError: the process ended early; the message holds the end of its stderr.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "4321"}
    command = [sys.executable, "-c", f"from {__name__} import serve; serve()"]
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment)  # noqa: S603
    lines: queue.Queue[bytes] = queue.Queue()
    errors: list[bytes] = []
    threads = [
        threading.Thread(target=_feed, args=(process, pickle.dumps((job, argument))), daemon=True),
        threading.Thread(target=_pump, args=(process, lines), daemon=True),
        threading.Thread(target=lambda: errors.append(process.stderr.read() if process.stderr else b""), daemon=True),
    ]
    for thread in threads:
        thread.start()
    try:
        yield _read(lines, threads[2], errors, limit_s)
    finally:
        process.kill()
        process.wait()
        for thread in threads:
            thread.join()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def _feed(process: subprocess.Popen[bytes], data: bytes) -> None:
    with suppress(BrokenPipeError):  # a child that died early is reported by the reader
        if process.stdin is not None:
            process.stdin.write(data)
            process.stdin.close()


def _pump(process: subprocess.Popen[bytes], lines: queue.Queue[bytes]) -> None:
    if process.stdout is not None:
        for line in process.stdout:
            lines.put(line)
    lines.put(b"")


def _read(lines: queue.Queue[bytes], stderr: threading.Thread, errors: list[bytes], limit_s: float) -> Iterator[Any]:
    wait = START_S
    while True:
        try:
            line = lines.get(timeout=wait)
        except queue.Empty:
            raise ChildTimeoutError(f"no answer within {wait:g} s") from None
        if not line:
            stderr.join()
            text = b"".join(errors).decode(errors="replace").strip()
            raise ChildCrashedError(text.splitlines()[-1] if text else "the process ended without a word")
        answer = json.loads(line)
        if answer == "end":
            return
        if answer != "ready":
            yield answer
        wait = limit_s


def serve() -> None:
    """Entry point of the child: read a job from stdin, write one JSON line per answer to stdout."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what the component prints must not be taken for answers
    job, argument = pickle.load(sys.stdin.buffer)  # noqa: S301  # written by the parent
    for answer in globals()[job](argument):
        out.write(json.dumps(answer) + "\n")
        out.flush()
    out.write(json.dumps("end") + "\n")
    out.flush()


def judge(argument: tuple[Any, list[tuple[str, Any]]]) -> Iterator[Any]:
    """Job: verify each (response, reference) pair; answers {"status", "score"} or {"error"}."""
    verifier, pairs = argument
    yield "ready"
    for response, reference in pairs:
        try:
            verdict = verifier.verify(response, reference)
            if inspect.isawaitable(verdict):
                verdict = asyncio.run(_wait(verdict))
            yield {"status": str(verdict.status), "score": verdict.score}
        except Exception as error:  # noqa: BLE001  # reported to the parent with its type
            yield {"error": f"{type(error).__name__}: {error}"[:300]}


async def _wait(awaitable: Any) -> Any:
    return await awaitable


def imports(factory: str) -> Iterator[Any]:
    """Job: import "module:attribute"; answers the heavy packages that this loaded."""
    module, _, attribute = factory.partition(":")
    getattr(importlib.import_module(module), attribute)
    yield "ready"
    yield [name for name in HEAVY if name in sys.modules]


def mixer_stream(argument: tuple[Any, dict[str, Any], dict[str, Any], int, int]) -> Iterator[Any]:
    """Job: build a mixer from (component, options, context, steps, count); answers the domains drawn at each step."""
    component, options, context, steps, count = argument
    mixer = component.build(options, **context)
    yield "ready"
    for step in range(steps):
        yield mixer.draw(count, step=step, available=list(context["domains"]))
