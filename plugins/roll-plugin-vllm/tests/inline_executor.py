"""An executor whose workers are threads of the test's process: quick to start, and open to monkeypatching."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence

from roll_core.cluster import Seat, WorkerLost, WorkerSpec
from roll_core.plugin.component import load_object


class InlineExecutor:
    """Only what the backend uses of `Executor`."""

    def __init__(self, seats: Mapping[str, Sequence[Seat]] | None = None):
        self.planned = seats or {}
        self.groups: dict[str, InlineGroup] = {}
        self.specs: list[WorkerSpec] = []

    def seats(self, role):
        return self.planned.get(role)

    def put(self, value):
        return Put(value)

    def start(self, spec, *, timeout_s):
        self.specs.append(spec)
        self.groups[spec.role] = group = InlineGroup(spec)
        try:
            group.build()
        except BaseException:
            group.close()
            raise
        return group


class Put:
    def __init__(self, value):
        self.value = value

    def release(self):
        self.value = None


class InlineGroup:
    """One worker: `factory(**kwargs)` on a thread with an event loop."""

    def __init__(self, spec):
        self.spec = spec
        self.role = spec.role
        self.worker = None
        self.is_lost = False
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def build(self):
        made = load_object(self.spec.factory)(**self.spec.kwargs)
        self.worker = asyncio.run_coroutine_threadsafe(made, self.loop).result(30)
        self.is_lost = False

    def submit(self, index, method, *args, timeout_s, what):
        values = [arg.value if isinstance(arg, Put) else arg for arg in args]
        return asyncio.run_coroutine_threadsafe(self._call(method, values, timeout_s), self.loop)

    def restart(self, index):
        self._end_worker()
        self.build()

    def close(self):
        if self.thread.is_alive():
            self._end_worker()
            self.loop.call_soon_threadsafe(self.loop.stop)
            self.thread.join(20)

    def lose(self):
        """As if the process had been killed."""
        self.is_lost = True

    async def _call(self, method, values, timeout_s):
        if self.is_lost or self.worker is None:
            raise WorkerLost(f"{self.role} has ended", self.role, 0)
        return await asyncio.wait_for(getattr(self.worker, method)(*values), timeout_s)

    def _end_worker(self):
        worker, self.worker = self.worker, None
        if worker is not None:
            asyncio.run_coroutine_threadsafe(worker.close(), self.loop).result(20)

    def _run(self):
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()
        rest = asyncio.all_tasks(self.loop)
        for task in rest:
            task.cancel()
        self.loop.run_until_complete(asyncio.gather(*rest, return_exceptions=True))
        self.loop.close()
