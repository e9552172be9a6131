from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from fake_vllm_engine import VOCABULARY
from inline_executor import InlineExecutor
from vllm_cases import FAKE, Weights, expected, request, served, versions

from roll_core.cluster import LocalExecutor, Seat, WorkerLost
from roll_core.errors import BackendError, ConfigError
from roll_core.testing.tiny import make_tiny_tokenizer
from roll_core.types import PolicyRef
from roll_plugin_vllm.backend import VllmBackend, make_backend
from roll_plugin_vllm.options import VllmOptions


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
    backend = VllmBackend(model=Path("m"), seed=0, engine=FAKE, executor=InlineExecutor())
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
        group = executor.groups["rollout-0"]
        group.spec = replace(group.spec, kwargs={**group.spec.kwargs, "engine": "fake_vllm_engine:nothing"})
        group.lose()
        with pytest.raises(WorkerLost, match="every replica has failed"):
            await backend.generate(request())
        with pytest.raises(WorkerLost, match="every replica has failed"):
            backend.sync_weights(Weights(1), 1)

    executor = InlineExecutor()
    served(body, executor=executor, max_restarts=1)


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
        victim = backend._fleet._members["rollout-0"].link._group.greeting(0).pid
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
        await asyncio.to_thread(backend.remove_replica, "rollout-1")
        for one, done in zip(many, await asyncio.gather(*tasks), strict=True):
            assert done.token_ids.tolist() == expected(one, 3, stop=150)
        deadline = time.monotonic() + 30
        while not all(health.is_live for health in backend.health()) and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        assert [(health.name, health.restarts) for health in backend.health()] == [("rollout-0", 1)]
        with pytest.raises(BackendError, match="one must stay"):
            backend.remove_replica("rollout-0")

    served(body, executor=workers, replicas=2, engine_args={"step_s": 0.004})


def test_a_replica_lost_in_an_update_gets_the_new_weights_when_it_is_replaced():
    async def body(backend):
        executor.groups["rollout-0"].lose()
        backend.sync_weights(Weights(6), 3)
        done = await backend.generate(request())
        assert (done.token_ids.tolist(), versions(done)) == (expected(request(), 6), [(0, 12, 3)])

    executor = InlineExecutor()
    served(body, executor=executor)


def test_after_weights_were_refused_by_one_replica_all_of_them_take_the_next_ones():
    async def body(backend):
        for version in range(3):
            executor.groups["rollout-1"].worker._engine.wants = {"refuse_stage": version < 2}
            if version < 2:
                with pytest.raises(BackendError, match="not taken over"):
                    backend.sync_weights(Weights(9), version)
        backend.sync_weights(Weights(2), 2)
        for number in range(4):
            one = request(f"r{number}", seed=number)
            assert (await backend.generate(one)).token_ids.tolist() == expected(one, 2)
        assert [health.restarts for health in backend.health()] == [0, 0]

    executor = InlineExecutor()
    served(body, executor=executor, replicas=2)


def test_replicas_come_and_go_by_number_and_keep_what_they_have():
    async def body(backend):
        backend.sync_weights(Weights(3), 5)
        many = [request(f"r{i}", seed=i, max_new_tokens=150) for i in range(8)]
        tasks = [asyncio.ensure_future(backend.generate(one)) for one in many]
        await asyncio.sleep(0.05)
        for count in (3, 3, 1, 2):
            await asyncio.to_thread(backend.scale, count)
            assert [health.is_live for health in backend.health()] == [True] * count
        for one, done in zip(many, await asyncio.gather(*tasks), strict=True):
            assert done.token_ids.tolist() == expected(one, 3, stop=150)
            assert versions(done) == [(0, 150, 5)]
        with pytest.raises(ConfigError, match="at least one replica"):
            backend.scale(0)

    served(body, engine_args={"step_s": 0.003})


def test_counts_and_devices_come_from_the_placement():
    seats = (Seat(0, (0, 1)), Seat(0, (2, 3)), Seat(1, (0, 1)))
    executor = InlineExecutor({"rollout": seats})

    async def body(backend):
        assert {seat for spec in executor.specs for seat in spec.seats} == set(seats)
        with pytest.raises(ConfigError, match="the placement has 3 seats for rollout"):
            backend.scale(4)
        backend.scale(2)
        backend.scale(3)
        taken, returned = executor.specs[:3], executor.specs[3]
        left = next(spec for spec in taken if spec.role not in {health.name for health in backend.health()})
        assert returned.seats == left.seats

    served(body, executor=executor)
    for written, planned in ({"replicas": 2}, "3"), ({"tensor_parallel": 4}, "2"):
        with pytest.raises(ConfigError, match=f"the placement has {planned}"):
            VllmOptions(**written).seated(seats)
    shared = VllmOptions().seated((Seat(0, (0,), 0.4), Seat(0, (1,), 0.4)))
    assert (shared.fraction, VllmOptions(memory_fraction=0.3).seated(seats).fraction) == (0.4, 0.3)
    with pytest.raises(ConfigError, match=r"\[1, 2\] devices each"):
        VllmOptions().seated((Seat(0, (0,)), Seat(0, (1, 2))))


def test_closing_after_a_loss_is_quick_and_silent(caplog):
    async def run():
        backend = VllmBackend(
            model=Path("m"), seed=0, options=VllmOptions(replicas=2), executor=executor, engine="fake_vllm_engine:slow"
        )
        task = asyncio.ensure_future(backend.generate(request(max_new_tokens=150)))
        await asyncio.sleep(0.05)
        for group in executor.groups.values():
            group.lose()
        await asyncio.sleep(0.2)  # both are being replaced
        caplog.clear()
        started = time.monotonic()
        await backend.close()
        assert time.monotonic() - started < 15
        with pytest.raises(BackendError, match="closed"):
            await task
        assert caplog.records == []

    executor = InlineExecutor()
    asyncio.run(run())


def test_without_vllm_the_factory_says_what_to_install():
    from roll_plugin_vllm.versions import _installed

    if _installed() is not None:
        pytest.skip("vLLM is installed")
    with pytest.raises(BackendError, match="pip install"):
        make_backend(model=Path("m"), seed=0, replicas=1)
