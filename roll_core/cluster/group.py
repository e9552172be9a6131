"""The workers of one role, as the driver calls them. Every wait is named, bounded and explained when it fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import Any

from roll_core.cluster.calls import Call, Post
from roll_core.cluster.deadlines import Deadlines
from roll_core.cluster.errors import Stuck, WorkerLost
from roll_core.cluster.link import Greeting, Link, ranges
from roll_core.cluster.proof import check_builds, check_proof
from roll_core.cluster.reference import Clock, Packed, Transfers, pack
from roll_core.cluster.spec import WorkerHealth, WorkerSpec
from roll_core.cluster.waits import WAITS, Wait
from roll_core.errors import ConfigError
from roll_core.plugin.host import Host

STOP_S = 5.0
"""How long `close` waits for the objects' own `close`."""
_AFTERMATH_S = 1.0
"""How long a failed call waits for what its other workers say, since the first error is seldom the cause."""


class WorkerGroup:
    """The processes of one role. Made by an executor; safe from any thread.

    Args:
        spec: what they are.
        launch: starts the process of one index, without waiting for it.
        host: the driver's plugins, which every worker must have; None proves versions only.
        transfers: where bytes are counted.
        deadlines: watches the calls nobody waits in.
        on_close: called when the processes have ended.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        launch: Callable[[int], Link],
        *,
        host: Host | None,
        transfers: Transfers,
        deadlines: Deadlines,
        on_close: Callable[[], None],
    ) -> None:
        self.spec = spec
        self.role = spec.role
        self.size = spec.count
        self._launch = launch
        self._host = host
        self._transfers = transfers
        self._deadlines = deadlines
        self._on_close = on_close
        self._restarting = threading.Lock()
        self._start_s = 0.0
        self._posts: list[Post] = []

    def start(self, timeout_s: float) -> None:
        """Start all processes and build their objects; on failure none is left. See `Executor.start`."""
        self._start_s = timeout_s
        try:
            for index in range(self.size):
                self._posts.append(Post(self.role, index, self._launch(index), self._transfers))
            self._bring_up(self._posts)
        except BaseException:
            self._kill()
            raise

    # --- calls --------------------------------------------------------------------------------------------------------

    def call(self, method: str, *args: Any, timeout_s: float, what: str, **kwargs: Any) -> list[Any]:
        """Call a method of every worker with the same arguments.

        Args:
            method: name of the method.
            args: positional arguments; packed once. Arrays arrive read-only.
            timeout_s: longest wait in seconds.
            what: what it is for, in the words of a message ("update of step 12").
            kwargs: keyword arguments.

        Returns:
            Results in rank order, their arrays read-only.

        Raises:
            WorkerLost: a worker ended; raised at once, not after the bound.
            Stuck: no answer within the bound; with the stacks of those that did not answer.
            Exception: whatever a worker raised, as soon as one did, with a note of which and where; its traceback is
                the cause. Errors of the other workers are added as notes.
        """
        packed = self._pack(method, args, kwargs)
        calls = [post.issue("call", method, packed, what, is_waited=True) for post in self._posts]
        return self._gather(calls, timeout_s, method, what)

    def scatter(self, method: str, per_worker: Sequence[tuple[Any, ...]], *, timeout_s: float, what: str) -> list[Any]:
        """Call a method of every worker, each with arguments of its own; otherwise like `call`.

        Args:
            method: name of the method.
            per_worker: positional arguments, one tuple a worker. A tuple that several workers get is packed once.
            timeout_s: longest wait in seconds.
            what: what it is for.
        """
        if len(per_worker) != self.size:
            raise ConfigError(f"{len(per_worker)} sets of arguments for {self.size} workers of role '{self.role}'")
        packed: dict[int, Packed] = {}
        calls = []
        for post, args in zip(self._posts, per_worker, strict=True):
            if id(args) not in packed:
                packed[id(args)] = self._pack(method, args, {})
            calls.append(post.issue("call", method, packed[id(args)], what, is_waited=True))
        return self._gather(calls, timeout_s, method, what)

    def submit(self, index: int, method: str, *args: Any, timeout_s: float, what: str, **kwargs: Any) -> Future[Any]:
        """Call a method of one worker and do not wait.

        The arguments may be changed as soon as this returns. The future fails as `call` does; cancelling it cancels a
        coroutine method in the worker, and a plain method that has not begun.
        """
        post = self._posts[index]
        call = post.issue("call", method, self._pack(method, args, kwargs), what, is_waited=False)
        entry = WAITS.enter(Wait("driver", post.name, call.label, timeout_s))
        key = self._deadlines.add(timeout_s, lambda: self._expire(call, timeout_s))
        call.future.add_done_callback(lambda _: WAITS.leave(entry))
        call.future.add_done_callback(lambda _: self._deadlines.remove(key))
        return call.future

    # --- workers ------------------------------------------------------------------------------------------------------

    def health(self) -> list[WorkerHealth]:
        """Every worker as the driver sees it. Asks nothing of the workers themselves."""
        with ThreadPoolExecutor(min(self.size, 16)) as pool:
            return list(pool.map(Post.health, self._posts))

    def stacks(self) -> dict[str, str]:
        """Where the workers are that owe an answer, by name ("actor[1]")."""
        owing = [post for post in self._posts if post.is_owing]
        with ThreadPoolExecutor(max(1, min(len(owing), 16))) as pool:
            return dict(
                zip((post.name for post in owing), pool.map(lambda post: post.link.stacks(), owing), strict=True)
            )

    def break_off(self, error: BaseException) -> None:
        """Let every unanswered call fail with `error`, so that who waits for it goes on. Any thread."""
        for post in self._posts:
            post.break_off(error)

    def node(self, index: int) -> str:
        """Name of the machine a worker is on."""
        return self.greeting(index).node

    def greeting(self, index: int) -> Greeting:
        """What a worker said of itself when it started."""
        return self._posts[index].link.ready.result(timeout=0)

    def restart(self, index: int) -> None:
        """Replace one worker by a fresh one, built as at the start; calls to the old one fail with `WorkerLost`.

        Raises:
            ConfigError: the role's processes belong together, and can only be started again together.
            PlacementError, PluginError, WorkerLost, Stuck: as for `Executor.start`.
        """
        if not self.spec.is_restartable:
            raise ConfigError(
                f"workers of role '{self.role}' are ranks of one process group and cannot be replaced one by one; "
                "close the group and start it again"
            )
        with self._restarting:
            post = self._posts[index]
            post.link.kill()
            post.replace(self._launch(index))
            try:
                self._bring_up([post])
            except BaseException:
                post.link.kill()
                raise

    def close(self) -> None:
        """Let every object close, and end every process. Once more does nothing."""
        with ThreadPoolExecutor(max(self.size, 1)) as pool:
            for post in self._posts:
                pool.submit(post.end, STOP_S)
        self._on_close()

    # --- starting -----------------------------------------------------------------------------------------------------

    def _bring_up(self, posts: Sequence[Post]) -> None:
        """Wait for fresh processes, check their proofs, and build their objects, all within the bound of the start."""
        clock = Clock()
        greetings = [Call(post.index, "start", "process start", post.link.ready) for post in posts]
        for post, greeting in zip(posts, self._gather(greetings, self._start_s, "start", "process start"), strict=True):
            check_proof(greeting.proof, self._host, post.where)
        known = [(post.where, post.greeting) for post in self._posts]
        check_builds({where: greeting.proof for where, greeting in known if greeting is not None})
        calls = []
        for post in posts:
            environment = {**self._rendezvous(post.index), **post.link.environment, **self.spec.env}
            arguments = (environment, self.spec.factory, self.spec.arguments(post.index))
            calls.append(post.issue("build", "build", self._pack("build", arguments, {}), "", is_waited=True))
        self._gather(calls, max(self._start_s - clock(), 0.1), "build", f"building {self.spec.factory}")

    def _rendezvous(self, index: int) -> dict[str, str]:
        """What torch's process groups read from the environment; replicas only learn their index."""
        own = {"ROLL_ROLE": self.role, "ROLL_INDEX": str(index)}
        if self.spec.is_restartable:
            return own
        nodes = [self.greeting(i).node for i in range(self.size)]
        first = self.greeting(0)
        return own | {
            "RANK": str(index),
            "WORLD_SIZE": str(self.size),
            "LOCAL_RANK": str(nodes[:index].count(nodes[index])),
            "LOCAL_WORLD_SIZE": str(nodes.count(nodes[index])),
            "MASTER_ADDR": first.address,
            "MASTER_PORT": str(first.port),
        }

    def _kill(self) -> None:
        for post in self._posts:
            post.link.kill()
        self._on_close()

    # --- waiting ------------------------------------------------------------------------------------------------------

    def _pack(self, method: str, args: Any, kwargs: Any) -> Packed:
        clock = Clock()
        packed = pack((args, kwargs))
        self._transfers.sent(f"{self.role}.{method}", 0, clock(), calls=0)
        return packed

    def _gather(self, calls: Sequence[Call], timeout_s: float, method: str, what: str) -> list[Any]:
        futures = [call.future for call in calls]
        whom = f"{self.role}[{ranges([call.index for call in calls])}]"
        with WAITS.during(Wait("driver", whom, f"'{method}' ({what})", timeout_s)):
            try:
                done, pending = wait(futures, timeout_s, FIRST_EXCEPTION)
                error: BaseException | None = None
                if any(future.exception() is not None for future in done):
                    wait(pending, _AFTERMATH_S)
                    error = self._failure(calls)
                elif pending:
                    error = self._stuck([call for call in calls if call.future in pending], calls, timeout_s)
            finally:
                for future in futures:
                    future.cancel()  # does nothing to those that are done
        if error is not None:
            raise error
        return [future.result() for future in futures]

    def _failure(self, calls: Sequence[Call]) -> BaseException:
        """The error to raise for calls of which some failed: a lost worker explains the errors of the others."""
        errors = [(call, call.future.exception()) for call in calls if call.future.done()]
        failed = [(call, error) for call, error in errors if error is not None]
        failed.sort(key=lambda pair: not isinstance(pair[1], WorkerLost))
        first = failed[0][1]
        for call, error in failed[1:]:
            first.add_note(f"{self.role}[{call.index}] failed too: {type(error).__name__}: {error}")
        busy = [call.index for call in calls if not call.future.done()]
        if busy:
            first.add_note(f"{self.role}[{ranges(busy)}] had not answered yet")
        return first

    def _expire(self, call: Call, timeout_s: float) -> None:
        if not call.future.done():
            call.fail(self._stuck([call], [call], timeout_s))

    def _stuck(self, silent: Sequence[Call], asked: Sequence[Call], timeout_s: float) -> Stuck:
        with ThreadPoolExecutor(min(len(silent), 16)) as pool:
            texts = list(pool.map(lambda call: self._posts[call.index].link.stacks(), silent))
        stacks = {call.index: text or "(it wrote no stack)" for call, text in zip(silent, texts, strict=True)}
        indices = sorted(stacks)
        own = Wait("driver", f"{self.role}[{ranges(indices)}]", silent[0].label, timeout_s)
        lines = [f"{own.who} waits for {own.whom}: {own.what}; no answer for {timeout_s:g} s, which is the bound"]
        answered = [call.index for call in asked if call.future.done()]
        if answered:
            lines.append(f"{self.role}[{ranges(answered)}] answered")
        for call in silent:
            lines.append(f"{self._posts[call.index].where}, {self._doing(call)}:")
            lines += [f"  {line}" for line in stacks[call.index].splitlines()]
        others = [wait_.render() for wait_ in WAITS.open() if (wait_.whom, wait_.what) != (own.whom, own.what)]
        lines += [f"meanwhile {text}" for text in others[:8]]
        return Stuck("\n".join(lines), self.role, indices, silent[0].what, stacks)

    def _doing(self, call: Call) -> str:
        health = self._posts[call.index].health()
        if not health.is_alive:
            return "which has ended"
        if health.busy_s is None:
            return "starting"
        return f"at {health.busy_with} for {health.busy_s:.1f} s, {health.queued} unanswered"


def close_all(groups: Sequence[WorkerGroup]) -> None:
    """Close groups at the same time, so that one that has to be killed does not keep the others waiting."""
    with ThreadPoolExecutor(max(len(groups), 1)) as pool:
        for closing in [pool.submit(group.close) for group in groups]:
            closing.result()
