"""The machines of a Ray cluster: what they have, whether they live, and an agent on each."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.placement_group import PlacementGroup, placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from roll_core.cluster.errors import PlacementError
from roll_core.cluster.ray_worker import NodeAgent
from roll_core.cluster.reference import Clock
from roll_core.cluster.spec import WorkerSpec

NODE_ID = "ray.io/node-id"
"""Label that Ray gives every node."""
_ASK_S = 5.0
_REACH_S = 10.0
"""How long the head of a cluster may take to accept a connection."""
_SHOWN = ("CPU", "GPU", "memory")


def join_cluster(address: str | None) -> None:
    """Connect this process to a Ray cluster, or start one on this machine.

    Args:
        address: "auto", "host:port"; None takes `RAY_ADDRESS`, else starts one.

    Raises:
        PlacementError: nobody answers there. Ray itself would wait for minutes.
    """
    written = address or os.environ.get("RAY_ADDRESS", "")
    host, _, port = written.removeprefix("ray://").rpartition(":")
    help_text = "start one with `ray start --head`, or leave cluster.address null to have one started on this machine"
    options: dict[str, Any] = {} if written else {"include_dashboard": False}
    try:
        if host and port.isdigit():
            socket.create_connection((host, int(port)), timeout=_REACH_S).close()
        ray.init(address=written or "local", log_to_driver=False, logging_level=logging.WARNING, **options)
    except (OSError, ConnectionError) as error:
        raise PlacementError(f"no Ray cluster answers at '{written}' ({error}); {help_text}") from error


class Nodes:
    """One agent per machine that has a worker, started when it is first needed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._agents: dict[str, Any] = {}

    def prepare(self, node_id: str) -> None:
        """Start the agent of a machine, without waiting for it."""
        with self._lock:
            if node_id not in self._agents:
                here = NodeAffinitySchedulingStrategy(node_id, soft=False)
                options = {"num_cpus": 0, "scheduling_strategy": here, "max_concurrency": 8}
                self._agents[node_id] = ray.remote(**options)(NodeAgent).remote()

    def ask(self, node_id: str, method: str, *args: Any, timeout_s: float = _ASK_S) -> Any:
        """Ask a machine's agent; None when it does not answer in time, or the machine is gone."""
        agent = self._agents.get(node_id)
        if agent is None:
            return None
        try:
            return ray.get(getattr(agent, method).remote(*args), timeout=timeout_s)
        except (RayError, TimeoutError):
            return None

    def close(self, folder: str) -> None:
        """End all agents; `folder`, if not empty, is removed on every machine first."""
        with self._lock:
            agents, self._agents = self._agents, {}
        for node_id, agent in agents.items():
            if folder and is_node_alive(node_id):
                ray.wait([agent.remove.remote(folder)], timeout=_ASK_S)
            ray.kill(agent)


class Places:
    """What the processes of one role have reserved: one placement group together, or one for each replica.

    Args:
        spec: the role.
        timeout_s: how long to wait for room.
        pinned: identifier of each process's machine; None leaves it to Ray.
    """

    def __init__(self, spec: WorkerSpec, timeout_s: float, pinned: Sequence[str] | None = None) -> None:
        self._spec = spec
        self._timeout_s = timeout_s
        self._pinned = pinned
        self._bundle = spec.resources() or {"CPU": 0.001}
        self._groups: list[PlacementGroup] = []

    def reserve(self) -> None:
        """Reserve room for every process.

        Raises:
            PlacementError: there is none within the bound; names what was asked and what there is. Nothing stays
                reserved.
        """
        count = self._spec.count
        sets = [[index] for index in range(count)] if self._spec.is_restartable else [list(range(count))]
        try:
            self._groups = [self._group([self._pinned[i] for i in own] if self._pinned else len(own)) for own in sets]
            self._wait(self._groups, count)
        except BaseException:
            self.release()
            raise

    def renew(self, index: int, pinned: str = "") -> None:
        """Reserve room for a replica again: on a certain machine, or wherever there is some.

        Raises:
            PlacementError: there is none within the bound.
        """
        remove_placement_group(self._groups[index])
        self._groups[index] = self._group([pinned] if pinned else 1)
        self._wait([self._groups[index]], 1)

    def strategy(self, index: int) -> PlacementGroupSchedulingStrategy:
        """Where the process of an index is scheduled."""
        group, bundle = (self._groups[index], 0) if self._spec.is_restartable else (self._groups[0], index)
        return PlacementGroupSchedulingStrategy(group, bundle, placement_group_capture_child_tasks=False)

    def release(self) -> None:
        """Give everything back."""
        groups, self._groups = self._groups, []
        for group in groups:
            remove_placement_group(group)

    def _group(self, where: Sequence[str] | int) -> PlacementGroup:
        """So many bundles, or one for each machine named."""
        if isinstance(where, int):
            return placement_group([self._bundle] * where, strategy="PACK")
        selectors = [{NODE_ID: node_id} for node_id in where]
        return placement_group([self._bundle] * len(where), bundle_label_selector=selectors)

    def _wait(self, groups: Sequence[PlacementGroup], count: int) -> None:
        clock = Clock()
        for group in groups:
            if not group.wait(max(self._timeout_s - clock(), 0.01)):
                raise PlacementError(self._no_room(count))

    def _no_room(self, count: int) -> str:
        machines = [node for node in ray.nodes() if node["Alive"]]
        room = sum(_fits(node["Resources"], self._bundle) for node in machines)
        totals = "; ".join(f"{describe_node(node)}: {_amounts(node['Resources'])}" for node in machines)
        why = "others hold what it needs" if room >= count else f"even when idle it has room for {room} of them"
        where = " on " + ", ".join(sorted({node_name(node) for node in self._pinned})) if self._pinned else ""
        return (
            f"role '{self._spec.role}' asks for {count} x {{{_amounts(self._bundle)}}}{where}; the cluster had no room "
            f"for it within {self._timeout_s:g} s: {why}. It has {totals}; "
            f"free now: {_amounts(ray.available_resources())}"
        )


def is_node_alive(node_id: str) -> bool:
    """Whether a machine takes part in the cluster."""
    return any(node["NodeID"] == node_id and node["Alive"] for node in ray.nodes())


def describe_node(node: Mapping[str, Any]) -> str:
    """A machine for people."""
    return f"{node['NodeID'][:8]}@{node['NodeManagerAddress']}"


def node_name(node_id: str) -> str:
    """The same, from its identifier."""
    return next((describe_node(node) for node in ray.nodes() if node["NodeID"] == node_id), node_id[:8])


def _fits(total: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    return min(int(total.get(name, 0.0) / amount + 1e-9) for name, amount in bundle.items())


def _amounts(resources: Mapping[str, float]) -> str:
    texts = []
    for name in _SHOWN:
        if name in resources:
            amount = resources[name]
            texts.append(f"{amount / 2**30:.1f} GiB memory" if name == "memory" else f"{amount:g} {name}")
    return ", ".join(texts) or "nothing"
