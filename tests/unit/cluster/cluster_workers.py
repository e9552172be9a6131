"""Worker objects for the tests; imported by worker processes."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import subprocess
import sys
import threading
import time

import numpy as np


class LocalError(Exception):
    """Cannot be read again from its pickle."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


class Worker:
    def __init__(self, scale=1, rank=0, fail=None, log=None):
        if fail == "raise" or fail == rank:
            raise ValueError(f"cannot build rank {rank}")
        if fail == "hang":
            time.sleep(100)
        if fail == "exit":
            print("about to leave")
            os._exit(7)
        self.scale, self.rank, self.log, self.seen = scale, rank, log, []

    def add(self, a, b=0):
        return (a + b) * self.scale

    def who(self):
        return self.rank, os.getpid(), threading.get_ident()

    def env(self, *names):
        return [os.environ.get(name) for name in names]

    def note(self, item):
        self.seen.append(item)
        return list(self.seen)

    def total(self, array):
        return float(array.sum()), bool(array.flags.writeable)

    def cuda_sum(self, count):
        import torch

        return torch.cuda.device_count(), float(torch.ones(count, device="cuda").sum())

    def size_of(self, array, name):
        return array.nbytes

    def total_of(self, values):
        return float(sum(each["x"].sum() for each in values))

    def big(self, count):
        return np.arange(count, dtype=np.float64)

    def fail(self, kind="value"):
        if kind == "unpicklable":
            raise LocalError("this", "that")
        if kind == "result":
            return lambda: 1
        raise ValueError(f"rank {self.rank} cannot")

    def fail_or_hang(self, who):
        if self.rank == who:
            raise ValueError(f"rank {self.rank} cannot")
        time.sleep(100)

    def exit_or_hang(self, who, code):
        if self.rank == who:
            print("last words of the worker", flush=True)
            os._exit(code)
        time.sleep(100)

    def sys_exit(self, code):
        sys.exit(code)

    def sleep(self, seconds):
        time.sleep(seconds)
        return seconds

    def hang_in_python(self):
        while True:
            self.scale += 1

    def hang_in_c(self):
        ctypes.CDLL(None).sleep(100)

    def hang_in_regex(self):
        re.match(r"(a+)+$", "a" * 64 + "b")

    def spawn(self):
        return subprocess.Popen(["sleep", "100"]).pid

    def close(self):
        if self.log:
            with open(self.log, "a") as file:
                file.write(f"closed {self.rank}\n")


class AsyncWorker(Worker):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.event = None
        self.cancelled = 0

    async def wait_for_open(self, number):
        self.event = self.event or asyncio.Event()
        await self.event.wait()
        return number

    def open(self):
        (self.event or asyncio.Event()).set()

    async def forever(self):
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise

    def count_cancelled(self):
        return self.cancelled

    def runs_own_loop(self):
        return asyncio.run(asyncio.sleep(0, 5))


async def make_async(**kwargs):
    await asyncio.sleep(0)
    return AsyncWorker(**kwargs)
