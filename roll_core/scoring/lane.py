"""One lane of the pool: a driver thread that feeds one worker, enforces its deadlines and replaces it."""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from typing import Any

from roll_core.errors import ComponentError
from roll_core.scoring.serve import VerifierSpec, VerifyRequest, decode
from roll_core.scoring.workers import ProcessWorker, ThreadWorker, WorkerKilledError, WorkerLostError
from roll_core.types import Verdict

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """Times in seconds: for one verdict, and for a worker to start or to build one verifier."""

    verdict_s: float
    start_s: float

    def of_verdict(self, own_s: float | None) -> float:
        """The deadline of a verifier that asks for `own_s` seconds."""
        return self.verdict_s if own_s is None else max(self.verdict_s, own_s)


@dataclass(slots=True, eq=False)
class Job:
    """A verdict that somebody waits for."""

    request: VerifyRequest
    future: Future[Verdict] = field(default_factory=Future)

    def answer(self, verdict: Verdict) -> None:
        """Hand the verdict over, unless the waiter has gone."""
        with contextlib.suppress(InvalidStateError):
            self.future.set_result(verdict)


class Lane:
    """Serves jobs from a shared queue until it is told to stop (None in the queue, or `abort`).

    Deadlines are measured in this thread, so that an event loop that is busy elsewhere neither stretches nor cuts
    them. A job's time counts from when its worker starts on it, not from when it was queued.
    """

    def __init__(
        self,
        jobs: queue.SimpleQueue[Job | None],
        specs: Mapping[str, VerifierSpec],
        make: Callable[[], ProcessWorker | ThreadWorker],
        limits: Limits,
    ) -> None:
        self._jobs = jobs
        self._specs = specs
        self._make = make
        self._limits = limits
        self._worker: ProcessWorker | ThreadWorker | None = None
        self._built: dict[str, str] = {}
        self._deadlines: dict[str, float] = {}
        self._aborted = False
        self._thread: threading.Thread | None = None
        self.replaced = 0
        """How many workers were lost and replaced."""

    def start(self, keys: Iterable[str]) -> Future[dict[str, str]]:
        """Start the thread and its worker, and build `keys`; the result says of what kind each is (`Bench.build`).

        The future fails with `ComponentError` when a verifier does not build, after which the lane is stopped.
        """
        ready: Future[dict[str, str]] = Future()
        arguments = (tuple(keys), ready)
        self._thread = threading.Thread(target=self._run, args=arguments, name="roll-verifier-lane", daemon=True)
        self._thread.start()
        return ready

    def limit_of(self, key: str) -> float:
        """Deadline of one verdict of a verifier that this lane has built, in seconds."""
        return self._deadlines[key]

    def abort(self) -> None:
        """Kill the worker; the job it is at is answered, later ones are not taken."""
        self._aborted = True
        self._jobs.put(None)
        worker = self._worker
        if worker is not None:
            worker.kill()

    def join(self, timeout_s: float) -> None:
        """Wait for the thread to end."""
        if self._thread is not None:
            self._thread.join(timeout_s)

    # --- in the lane's thread ---

    def _run(self, keys: tuple[str, ...], ready: Future[dict[str, str]]) -> None:
        try:
            ready.set_result({key: self._build(key) for key in keys})
        except Exception as error:  # noqa: BLE001 - handed to whoever started the lane
            self._drop()
            ready.set_exception(error)
            return
        while not self._aborted and (job := self._jobs.get()) is not None:
            if job.future.set_running_or_notify_cancel():
                job.answer(self._serve(job.request))
        self._drop()

    def _serve(self, request: VerifyRequest) -> Verdict:
        spec = self._specs[request.key]
        started = time.perf_counter()
        try:
            reply = self._ask(request)
            return decode(reply).stamped(verifier=spec.name, version=spec.version, seconds=reply["seconds"])
        except ComponentError as error:
            verdict = Verdict.error(str(error), detail="build_failed")
        except TimeoutError:
            verdict = Verdict.error(f"no verdict within {self._deadlines[request.key]:g} s", detail="timeout")
        except WorkerLostError as error:
            verdict = Verdict.error(str(error), detail="closed" if self._aborted else "crashed")
        except Exception as error:
            logger.exception("verifier '%s': the request could not be handed to a worker", spec.name)
            verdict = Verdict.error(f"{type(error).__name__}: {error}", detail="machinery")
        self._replace(spec, verdict, request)
        return verdict.stamped(verifier=spec.name, version=spec.version, seconds=time.perf_counter() - started)

    def _ask(self, request: VerifyRequest) -> dict[str, Any]:
        """The worker's reply. A request whose worker was killed from outside is not the cause, and is asked again once.

        Raises:
            ComponentError, TimeoutError, WorkerLostError: there is none.
        """
        try:
            self._build(request.key)
            return self._ready_worker().request("verify", request, self._deadlines[request.key])
        except (WorkerKilledError, ComponentError) as error:
            loss = error.__cause__ if isinstance(error, ComponentError) else error
            if self._aborted or not isinstance(loss, WorkerKilledError):
                raise
            logger.warning("a verifier process was lost and is replaced: %s; its verdict is asked for again", error)
            self._drop()
            self.replaced += 1
        self._build(request.key)
        return self._ready_worker().request("verify", request, self._deadlines[request.key])

    def _replace(self, spec: VerifierSpec, verdict: Verdict, request: VerifyRequest) -> None:
        self._drop()
        if self._aborted:
            return
        self.replaced += 1
        text = "verifier '%s' %s: %s (%s); its worker is replaced. Prompt %s, response starts %r"
        prompt = request.prompt.id if request.prompt is not None else "unknown"
        logger.warning(text, spec.name, spec.version, verdict.reason, verdict.detail, prompt, request.response[:80])

    def _build(self, key: str) -> str:
        """Build a verifier in the worker unless it is there; return its kind."""
        if key in self._built:
            return self._built[key]
        name = self._specs[key].name
        try:
            reply = self._ready_worker().request("build", key, self._limits.start_s)
        except TimeoutError:
            raise ComponentError(f"verifier '{name}' ({key}) was not built within {self._limits.start_s:g} s") from None
        except (WorkerLostError, OSError) as error:
            raise ComponentError(f"verifier '{name}' ({key}) could not be built: {error}") from error
        if "failed" in reply:
            failure = ComponentError(f"verifier '{name}' ({key}) could not be built: {reply['failed']}")
            if reply["trace"]:
                failure.add_note(f"in the worker:\n{reply['trace']}")
            raise failure
        self._deadlines[key] = self._limits.of_verdict(reply.get("deadline_s"))
        self._built[key] = str(reply["kind"])
        return self._built[key]

    def _ready_worker(self) -> ProcessWorker | ThreadWorker:
        if self._worker is None:
            self._worker = self._make()
        if self._aborted:  # looked at after the worker is known to `abort`, so that none escapes it
            raise WorkerLostError("the pool was closed")
        return self._worker

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.close()
        self._worker = None
        self._built.clear()
