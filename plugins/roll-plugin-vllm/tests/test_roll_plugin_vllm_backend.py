from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from fake_vllm_engine import VOCABULARY, token_at

from roll_core.cluster import LocalExecutor
from roll_core.contracts import TensorInfo
from roll_core.errors import BackendError
from roll_core.testing.tiny import make_tiny_tokenizer
from roll_core.types import GenerateRequest, PolicyRef, SamplingParams
from roll_plugin_vllm.asks import mixed_seed
from roll_plugin_vllm.backend import VllmBackend, make_backend
from roll_plugin_vllm.options import VllmOptions

FAKE = "fake_vllm_engine:start_engine"


class Weights:
    """One tensor, whose value stands for the whole model."""

    def __init__(self, value):
        self.value = value

    def manifest(self):
        return [TensorInfo("w", "float32", (4,))]

    def tensors(self):
        yield "w", torch.full((4,), float(self.value))


class AdapterWeights(Weights):
    def adapter_config(self):
        return {"r": 4, "target_modules": {"q_proj"}}

    def adapter_manifest(self):
        return [TensorInfo("base_model.model.q_proj.lora_A.weight", "float32", (4,))]

    def adapter_tensors(self):
        yield "base_model.model.q_proj.lora_A.weight", torch.full((4,), 10.0 + self.value)


def request(name="r", seed=0, group="", prefix=(), policy=None, **sampling):
    params = SamplingParams(**{"max_new_tokens": 12, **sampling})
    return GenerateRequest((1, 2), params, seed, name, group, prefix, policy)


def expected(one, weights=0, start=0, stop=12):
    seed = 0 if one.sampling.temperature == 0 else mixed_seed(one, 0)
    return [token_at(weights, seed, position) for position in range(start, stop)]


def served(body, folder=Path("model"), executor=None, **options):
    """Run `body(backend)` on a loop of its own."""

    async def run():
        backend = VllmBackend(model=folder, seed=0, options=VllmOptions(**options), executor=executor, engine=FAKE)
        try:
            await asyncio.wait_for(body(backend), 60)
        finally:
            await backend.close()

    asyncio.run(run())


def versions(done):
    return [(run.start, run.stop, run.policy.version) for run in done.versions]


def test_requests_are_served_together_and_end_for_their_reasons():
    async def body(backend):
        many = [request(f"r{i}", seed=i) for i in range(6)]
        for one, done in zip(many, await asyncio.gather(*map(backend.generate, many)), strict=True):
            assert done.token_ids.tolist() == expected(one)
            assert (done.finish_reason, versions(done)) == ("length", [(0, 12, 0)])
        first = expected(request())[0]
        stopped = await backend.generate(request(stop_token_ids=(first,)))
        assert (stopped.token_ids.tolist(), stopped.finish_reason) == ([first], "stop")
        nothing = await backend.generate(request(prefix=(3,) * 12))
        assert (len(nothing.token_ids), nothing.finish_reason) == (0, "length")
        room = await backend.generate(replace(request(max_new_tokens=500), token_ids=(1,) * 190))
        assert (len(room.token_ids), room.finish_reason) == (10, "length")

    served(body)


def test_a_prefix_goes_on_where_it_stopped():
    async def body(backend):
        whole = (await backend.generate(request())).token_ids.tolist()
        rest = await backend.generate(request("rest", prefix=tuple(whole[:5])))
        assert [*whole[:5], *rest.token_ids.tolist()] == whole

    served(body)


def test_abort_keeps_tokens_and_cancel_frees_the_slot():
    async def body(backend):
        task = asyncio.ensure_future(backend.generate(request("long", max_new_tokens=150)))
        gone = asyncio.ensure_future(backend.generate(request("gone", max_new_tokens=150)))
        await asyncio.sleep(0.05)
        backend.abort("long")
        backend.abort("nobody")
        gone.cancel()
        done = await task
        assert done.finish_reason == "abort"
        assert 0 < len(done.token_ids) < 150
        assert done.token_ids.tolist() == expected(request(), stop=len(done.token_ids))
        with suppress(asyncio.CancelledError):
            await gone
        assert [health.requests for health in backend.health()] == [0]
        assert (await backend.generate(request("gone"))).finish_reason == "length"

    served(body)


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (replace(request(), token_ids=()), "the prompt is empty"),
        (replace(request(), token_ids=(1,) * 200), "the model takes 200"),
        (replace(request(), token_ids=(VOCABULARY,)), "outside the model's vocabulary"),
        (request(top_p=0.0), "impossible sampling parameters"),
        (request(policy=PolicyRef(0, adapter="x")), "no adapter named 'x'; known: none"),
    ],
)
def test_impossible_requests_are_refused(one, message):
    async def body(backend):
        with pytest.raises(BackendError, match=message):
            await backend.generate(one)

    served(body)


def test_ids_must_differ_and_a_closed_backend_says_so():
    async def body(backend):
        task = asyncio.ensure_future(backend.generate(request(max_new_tokens=100)))
        await asyncio.sleep(0)
        with pytest.raises(BackendError, match="running already"):
            await backend.generate(request())
        await backend.close()
        with pytest.raises(BackendError, match="closed"):
            await task
        with pytest.raises(BackendError, match="closed"):
            await backend.generate(request())

    served(body)


def test_several_event_loops_use_one_backend_after_each_other():
    backend = VllmBackend(model=Path("m"), seed=0, engine=FAKE)
    for _ in range(2):
        assert len(asyncio.run(backend.generate(request())).token_ids) == 12
    asyncio.run(backend.close())


def test_stop_strings_are_found_across_a_prefix(tmp_path):
    tokenizer = make_tiny_tokenizer()
    tokenizer.save_pretrained(tmp_path)

    async def body(backend):
        whole = expected(request())
        stop = tokenizer.decode(whole[4:6])
        done = await backend.generate(request(stop=(stop,)))
        assert (done.token_ids.tolist(), done.finish_reason) == (whole[:6], "stop")
        assert versions(done) == [(0, 6, 0)]
        rest = await backend.generate(request("rest", prefix=tuple(whole[:5]), stop=(stop,)))
        assert (rest.token_ids.tolist(), rest.finish_reason) == (whole[5:6], "stop")

    served(body, folder=tmp_path)


# --- weights ---


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


# --- replicas ---


def test_an_engine_that_dies_is_replaced_and_nothing_is_lost(tmp_path):
    async def body(backend):
        backend.sync_weights(Weights(4), 9)
        many = [request(f"r{i}", seed=i, group=f"g{i}") for i in range(4)]
        for one, done in zip(many, await asyncio.gather(*map(backend.generate, many)), strict=True):
            assert done.token_ids.tolist() == expected(one, 4)
            assert versions(done) == [(0, 12, 9)]
        assert [health.restarts for health in backend.health()] == [1]

    served(body, engine_args={"fail_at": 5, "marker": str(tmp_path / "failed")})


def test_a_replica_that_falls_silent_is_replaced(tmp_path):
    async def body(backend):
        assert (await backend.generate(request())).token_ids.tolist() == expected(request())
        assert [health.restarts for health in backend.health()] == [1]

    served(body, engine_args={"mute_at": 5, "marker": str(tmp_path / "mute")}, answer_timeout_s=1.5)


def test_a_replica_that_keeps_failing_is_given_up_with_its_reason():
    async def body(backend):
        replica = backend._fleet._seats["rollout[0]"].link
        replica._replica._engine.is_dead = True
        replica._arguments["engine"] = "fake_vllm_engine:nothing"
        with pytest.raises(BackendError, match="every replica has failed"):
            await backend.generate(request())
        with pytest.raises(BackendError, match="every replica has failed"):
            backend.sync_weights(Weights(1), 1)

    served(body, max_restarts=1)


@pytest.fixture
def workers(monkeypatch):
    """Worker processes that find the fake engine."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    with LocalExecutor() as executor:
        yield executor


def test_killed_replicas_lose_no_token_and_others_join_and_leave(workers):
    async def body(backend):
        backend.sync_weights(Weights(2), 1)
        many = [request(f"r{i}", seed=i, group=f"g{i % 3}", max_new_tokens=150) for i in range(9)]
        tasks = [asyncio.ensure_future(backend.generate(one)) for one in many]
        await asyncio.sleep(0.1)
        victim = backend._fleet._seats["rollout[0]"].link._group.greeting(0).pid
        os.kill(victim, signal.SIGKILL)
        for one, done in zip(many, await asyncio.gather(*tasks), strict=True):
            assert done.token_ids.tolist() == expected(one, 2, stop=150)
            assert versions(done) == [(0, 150, 1)]
        await asyncio.to_thread(backend.sync_weights, Weights(3), 2)  # also reaches what is still restarting
        name = await asyncio.to_thread(backend.add_replica)
        many = [replace(one, group_key=f"later {one.group_key}") for one in many]  # groups stay where they were
        tasks = [asyncio.ensure_future(backend.generate(one)) for one in many]
        await asyncio.sleep(0.05)
        assert {health.name for health in backend.health() if health.requests} >= {name}
        await asyncio.to_thread(backend.remove_replica, name)
        await asyncio.to_thread(backend.remove_replica, "rollout[1]")
        for one, done in zip(many, await asyncio.gather(*tasks), strict=True):
            assert done.token_ids.tolist() == expected(one, 3, stop=150)
        deadline = time.monotonic() + 30
        while not all(health.is_live for health in backend.health()) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert [(health.name, health.restarts) for health in backend.health()] == [("rollout[0]", 1)]
        with pytest.raises(BackendError, match="one must stay"):
            backend.remove_replica("rollout[0]")

    served(body, executor=workers, replicas=2, engine_args={"step_s": 0.004})


def test_one_replica_of_this_process_cannot_be_joined():
    async def body(backend):
        with pytest.raises(BackendError, match="give the backend an executor"):
            backend.add_replica()

    served(body)


def test_without_vllm_the_factory_says_what_to_install():
    from roll_plugin_vllm.versions import _installed

    if _installed() is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(BackendError, match="pip install"):
        make_backend(model=Path("m"), seed=0, replicas=1)
