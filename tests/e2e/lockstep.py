"""Asynchronous runs without chance, so that a run that was killed can be compared with one that was not.

Every group gets `TOKENS` tokens under each version of the weights, and neither a batch is taken nor an update ended
before all of them are made. What is trained then depends on nothing but the seed. Run as a script, it trains once for
each moment, in a process that kills itself then: `lockstep.py CONFIG.json MOMENT...`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import roll_core as roll
from roll_core.api import TrainedRun
from roll_core.builtin.local_train.strategy import LocalTrainStrategy
from roll_core.checkpoint import saving
from roll_core.data import Ledger, TicketState
from roll_core.rollout.ahead import AheadScheduler
from roll_core.types import Completion, GenerateRequest, PolicyRef, RolloutGroup, VersionRun

PROMPTS, GROUP, STALENESS, TOKENS = 4, 4, 2, 4
FIRST_TOKEN, VOCABULARY = 3, 50
WAIT_S = 120.0


def ticket_of(request_id: str) -> int:
    return int(request_id.split(":")[1].split("/", maxsplit=1)[0])


def length_of(request_id: str) -> int:
    """Some groups end under the version they were begun with, some under the next ones, none is late."""
    index = int(request_id.split("/")[1])
    return max(1, TOKENS * (ticket_of(request_id) % (STALENESS + 1) + 1) - 3 * index)


def version_at(request_id: str, position: int) -> int:
    """The version a token is made under."""
    return max(0, ticket_of(request_id) // PROMPTS - STALENESS) + position // TOKENS


class LockstepBackend:
    """Tokens depend on seed and position; each waits for the version that it is to be made under."""

    def __init__(self, ledger: Callable[[], Ledger]) -> None:
        self.policy_version = 0
        self.made = 0
        self.on_token: Callable[[LockstepBackend], None] = lambda _: None
        self._ledger = ledger
        self._waiting: dict[str, int] = {}
        self._aborted: set[str] = set()

    async def generate(self, request: GenerateRequest) -> Completion:
        key, start = request.request_id, len(request.prefix_ids)
        versions: list[int] = []
        while start + len(versions) < length_of(key):
            due = self._waiting[key] = version_at(key, start + len(versions))
            while self.policy_version < due and key not in self._aborted:
                await asyncio.sleep(0.001)
            del self._waiting[key]
            if key in self._aborted:
                break
            assert self.policy_version == due
            self.made += 1
            self.on_token(self)
            versions.append(due)
        is_cut = key in self._aborted
        self._aborted.discard(key)
        tokens = [FIRST_TOKEN + (request.seed + 7 * (start + n)) % VOCABULARY for n in range(len(versions))]
        return Completion(
            request_id=key,
            token_ids=np.array(tokens, np.int32),
            logprobs=np.array([-4.0 - token / 100 for token in tokens], np.float32),
            versions=tuple(VersionRun(n, n + 1, PolicyRef(version)) for n, version in enumerate(versions)),
            finish_reason="abort" if is_cut else "stop",
        )

    def abort(self, request_id: str) -> None:
        if request_id in self._waiting:
            self._aborted.add(request_id)

    def sync_weights(self, source: Any, version: int) -> None:
        self.policy_version = version

    def set_barrier(self, barrier: Any) -> None:
        pass

    async def close(self) -> None:
        pass

    async def settled(self) -> None:
        """Return when every group that is rolled out waits for later weights."""
        while not self._is_settled():
            await asyncio.sleep(0.001)

    def _is_settled(self) -> bool:
        waiting = {ticket_of(key) for key, due in self._waiting.items() if due > self.policy_version}
        states = {entry.ticket.id: entry.state for entry in self._ledger().open_tickets}
        return all(s is TicketState.ADMITTED or (s is TicketState.RUNNING and t in waiting) for t, s in states.items())


class Trace:
    """A tracker that writes down, by step, which tokens were trained and under which version each was made."""

    def __init__(self) -> None:
        self._folder = Path()

    def start(self, run: Any) -> None:
        self._folder = run.folder / "trace"
        self._folder.mkdir(exist_ok=True)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        pass

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None:
        rows = {}
        for group in groups:
            for rollout in group.rollouts:
                segment = rollout.segments[0]
                tokens = segment.token_ids[segment.response_mask].tolist()
                versions = [run.policy.version for run in segment.versions for _ in range(run.start, run.stop)]
                rows[f"{group.ticket.domain}:{group.ticket.id}/{rollout.index}"] = [tokens, versions]
        (self._folder / f"{step:04d}.json").write_text(json.dumps(rows))

    def finish(self, status: str) -> None:
        pass


@contextmanager
def in_lockstep(backend: LockstepBackend, ledgers: list[Ledger]) -> Iterator[None]:
    """Let batches be taken, and updates end, only when nothing more can be rolled out with the weights of now."""
    collect, update, init = AheadScheduler.collect, LocalTrainStrategy.update, Ledger.__init__
    loops: list[asyncio.AbstractEventLoop] = []

    def remembered(self: Ledger, *args: Any) -> None:
        init(self, *args)
        ledgers.append(self)

    async def settled_collect(self: AheadScheduler, *args: Any) -> Any:
        loops.append(asyncio.get_running_loop())
        await backend.settled()
        return await collect(self, *args)

    def settled_update(self: LocalTrainStrategy, *args: Any) -> dict[str, float]:
        metrics = update(self, *args)
        asyncio.run_coroutine_threadsafe(backend.settled(), loops[-1]).result(WAIT_S)
        return metrics

    with (
        mock.patch.object(AheadScheduler, "collect", settled_collect),
        mock.patch.object(LocalTrainStrategy, "update", settled_update),
        mock.patch.object(Ledger, "__init__", remembered),
    ):
        yield


def run(config: Mapping[str, Any], *, resume: bool = False, moment: str = "") -> TrainedRun:
    """Train in lockstep; with a `moment`, kill this process then."""
    ledgers: list[Ledger] = []
    backend = LockstepBackend(lambda: ledgers[-1])
    rollout = dict(config["rollout"]) | {"backend": {"use": backend}}
    trackers = [*config["trackers"], {"use": Trace()}]
    with in_lockstep(backend, ledgers), killing(backend, moment, Path(config["folder"])):
        return roll.train(**{**config, "rollout": rollout, "trackers": trackers}, resume=resume)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_after(checkpoint: Path) -> None:
    while not checkpoint.exists():  # a thread writes it
        time.sleep(0.001)
    kill()


@contextmanager
def killing(backend: LockstepBackend, moment: str, folder: Path) -> Iterator[None]:
    """`rollout`, `update`: after the checkpoint of step 4; `weights`, `name`: while that of step 4 is written."""
    fourth = folder / "checkpoints" / "step-00000004"
    update, save, seal = LocalTrainStrategy.update, LocalTrainStrategy.save, saving.seal
    updates = iter(range(1, 1000))

    def killed_update(self: LocalTrainStrategy, *args: Any) -> dict[str, float]:
        metrics = update(self, *args)
        if next(updates) == 6:
            kill_after(fourth)
        return metrics

    def killed_save(self: LocalTrainStrategy, folder: Path) -> None:
        save(self, folder)
        if fourth.name in str(folder):
            kill()

    def killed_seal(folder: Path, *args: Any) -> int:
        size = seal(folder, *args)
        if fourth.name in str(folder):
            kill()
        return size

    def kill_in_version_5(backend: LockstepBackend) -> None:
        if backend.policy_version == 5 and backend.made % 10 == 0:
            kill_after(fourth)

    if moment == "rollout":
        backend.on_token = kill_in_version_5
    patches = {
        "update": mock.patch.object(LocalTrainStrategy, "update", killed_update),
        "weights": mock.patch.object(LocalTrainStrategy, "save", killed_save),
        "name": mock.patch.object(saving, "seal", killed_seal),
    }
    if moment not in patches:
        yield
        return
    with patches[moment]:
        yield


def main(config_file: str, *moments: str) -> None:
    """Fork once for each moment, since importing takes longer than training; each run has a folder of its own."""
    config = json.loads(Path(config_file).read_text())
    for moment in moments:
        pid = os.fork()
        if pid == 0:
            run({**config, "folder": f"{config['folder']}/{moment}"}, moment=moment)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            raise SystemExit(f"the run that was to be killed at '{moment}' ended by itself")


if __name__ == "__main__":
    main(*sys.argv[1:])
