"""Processes that become one set of ranks after the other: what they import takes longer than most tests."""

from __future__ import annotations

import gc
import os

import torch.distributed as dist

from roll_core.cluster import LocalExecutor, WorkerSpec
from roll_core.cluster.serve import free_port
from roll_core.errors import RollError
from roll_core.plugin.component import load_object

LIMIT_S = 240.0


class Host:
    """In a process of the pool: the rank it is now, which answers to everything else."""

    def __init__(self):
        self._rank = None

    def become(self, factory, arguments, port):
        self.leave()
        os.environ["MASTER_PORT"] = str(port)
        self._rank = load_object(factory)(**arguments)

    def leave(self):
        self._rank = None
        if dist.is_initialized():
            dist.destroy_process_group()
        gc.collect()

    def close(self):
        self.leave()

    def __getattr__(self, name):
        return getattr(self._rank, name)


class Pool(LocalExecutor):
    """Ends no process when a group is closed, but keeps it for the next group of as many."""

    def __init__(self):
        super().__init__()
        self._idle = {}
        self._count = 0

    def start(self, spec, *, timeout_s):
        idle = self._idle.setdefault(spec.count, [])
        if not idle:
            self._count += 1
            role = f"pool{self._count}"
            idle.append(super().start(WorkerSpec(role, "fsdp_pool:Host", spec.count), timeout_s=LIMIT_S))
        group = idle.pop()
        arguments = (spec.factory, spec.arguments(0), free_port())
        try:
            group.call("become", *arguments, timeout_s=timeout_s, what=f"building {spec.factory}")
        except RollError:
            group.call("leave", timeout_s=LIMIT_S, what="leaving")
            idle.append(group)
            raise
        return Lent(group, idle)


class Lent:
    """A group of the pool, until it is closed."""

    def __init__(self, group, idle):
        self._group, self._idle = group, idle
        self.scatter = group.scatter

    def close(self):
        if self._group is not None:
            self._group.call("leave", timeout_s=LIMIT_S, what="leaving")
            self._idle.append(self._group)
            self._group = None
