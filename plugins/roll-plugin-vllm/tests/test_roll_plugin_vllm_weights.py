from __future__ import annotations

import asyncio

import pytest
from inline_executor import InlineExecutor
from vllm_cases import AdapterWeights, Weights, expected, request, served, versions

from roll_core.cluster import WorkerLost
from roll_core.errors import BackendError


def test_tokens_after_an_update_carry_its_version_and_come_from_its_weights():
    async def body(backend):
        one = request(max_new_tokens=150)
        task = asyncio.ensure_future(backend.generate(one))
        await asyncio.sleep(0.06)
        backend.sync_weights(Weights(3), 7)
        assert backend.policy_version == 7
        done = await task
        (_, swap, first), (start, stop, second) = versions(done)
        assert (first, start, stop, second) == (0, swap, 150, 7)
        assert done.token_ids.tolist() == expected(one, stop=swap) + expected(one, 3, swap, 150)

    served(body)


def test_refused_weights_leave_the_old_ones():
    async def body(backend):
        backend.sync_weights(Weights(1), 1)
        with pytest.raises(BackendError, match=r"version 2 were not taken over, version 1 stays.*do not fit"):
            backend.sync_weights(Weights(13), 2)
        assert backend.policy_version == 1
        done = await backend.generate(request())
        assert (done.token_ids.tolist(), versions(done)) == (expected(request(), 1), [(0, 12, 1)])
        backend.sync_weights(Weights(2), 3)
        assert (await backend.generate(request())).token_ids.tolist() == expected(request(), 2)

    served(body, engine_args={"refuse": 13})


def test_damaged_weights_leave_the_old_ones(monkeypatch):
    from roll_plugin_vllm.segment import Segment

    write = Segment.write.__func__

    def damaged(cls, manifest, tensors):
        segment = write(cls, manifest, tensors)
        segment.memory[segment.shipment.entries[0].offset] ^= 1
        return segment

    async def body(backend):
        monkeypatch.setattr(Segment, "write", classmethod(damaged))
        with pytest.raises(BackendError, match="arrived damaged"):
            backend.sync_weights(Weights(1), 1)
        assert backend.policy_version == 0
        assert (await backend.generate(request())).token_ids.tolist() == expected(request())

    served(body)


def test_only_the_adapter_travels_where_replicas_take_adapters():
    async def body(backend):
        backend.sync_weights(AdapterWeights(1), 4)
        done = await backend.generate(request())
        assert (done.token_ids.tolist(), versions(done)) == (expected(request(), 11), [(0, 12, 4)])

    served(body, max_lora_rank=8)


def test_machines_that_shared_memory_does_not_reach_get_the_bytes(monkeypatch):
    from roll_plugin_vllm import replica
    from roll_plugin_vllm.segment import Attached, SegmentUnreachable

    def unreachable(shipment):
        if shipment.path not in reached:
            raise SegmentUnreachable("another machine")
        return Attached(shipment)

    reached = set()
    receive = replica.Segment.receive

    def received(shipment, content):
        segment = receive(shipment, content)
        reached.add(segment.shipment.path)
        return segment

    monkeypatch.setattr(replica, "Attached", unreachable)
    monkeypatch.setattr(replica.Segment, "receive", received)

    async def body(backend):
        backend.sync_weights(Weights(5), 1)
        assert reached
        assert (await backend.generate(request())).token_ids.tolist() == expected(request(), 5)

    served(body)


def test_sleeping_replicas_take_new_weights_on_waking_up():
    async def body(backend):
        with pytest.raises(BackendError, match="sync them once"):
            backend.sleep(2)
        backend.sync_weights(Weights(1), 1)
        backend.sleep(2)
        task = asyncio.ensure_future(backend.generate(request()))
        backend.sync_weights(Weights(2), 2)
        await asyncio.sleep(0.05)
        assert not task.done()
        backend.wake_up()
        done = await task
        assert (done.token_ids.tolist(), versions(done)) == (expected(request(), 2), [(0, 12, 2)])

    served(body, sleep_mode=True)


def test_a_replica_without_sleep_mode_says_so():
    async def body(backend):
        with pytest.raises(BackendError, match="set sleep_mode"):
            backend.sleep()

    served(body)


class Sender:
    """In place of the one that drives vLLM's trainer engines, which are not here."""

    def __init__(self, executor):
        self.executor = executor
        self.routes = []
        self.is_broken = False

    def send(self, route, members, source, update):
        self.routes.append((route, [member.name for member in members]))
        for member in members:
            for method, *argument in ("begin",), ("receive", {"value": source.value}), ("finish", update.version):
                member.link.call(method, *argument, timeout_s=10, what="x").result()
            if self.is_broken:
                raise WorkerLost("another replica is gone")

    def close(self):
        pass


def direct(body, **options):
    executor = InlineExecutor()

    async def run(backend):
        backend._fleet.publisher._direct = Sender(executor)
        await body(backend, backend._fleet.publisher._direct)

    served(run, executor=executor, transfer="gloo", replicas=2, **options)


def test_weights_that_come_directly_and_a_fresh_replica_that_catches_up():
    async def body(backend, sender):
        backend.sync_weights(Weights(4), 1)
        assert sender.routes == [("gloo", ["rollout-0", "rollout-1"])]
        sender.executor.groups["rollout-0"].lose()
        while [health.restarts for health in backend.health()] != [1, 0] or not backend.health()[0].is_live:
            await asyncio.sleep(0.01)
        for number in range(4):
            one = request(f"r{number}", seed=number)
            done = await backend.generate(one)
            assert (done.token_ids.tolist(), versions(done)) == (expected(one, 4), [(0, 12, 1)])

    direct(body)


def test_a_direct_update_that_is_broken_off_comes_to_its_end_with_fresh_replicas():
    async def body(backend, sender):
        sender.is_broken = True  # rollout-0 has them, rollout-1 does not; nobody can tell
        backend.sync_weights(Weights(4), 1)
        while [health.restarts for health in backend.health()] != [1, 1]:
            await asyncio.sleep(0.01)
        for number in range(4):
            one = request(f"r{number}", seed=number)
            done = await backend.generate(one)
            assert (done.token_ids.tolist(), versions(done)) == (expected(one, 4), [(0, 12, 1)])

    direct(body)


def test_direct_weights_that_do_not_fit_are_refused_and_replicas_come_back_with_the_old_ones():
    async def body(backend, sender):
        backend.sync_weights(Weights(1), 1)
        with pytest.raises(BackendError, match=r"version 2 were not taken over, version 1 stays.*do not fit"):
            backend.sync_weights(Weights(13), 2)
        done = await backend.generate(request())
        assert (done.token_ids.tolist(), versions(done)) == (expected(request(), 1), [(0, 12, 1)])

    direct(body, engine_args={"refuse": 13})
