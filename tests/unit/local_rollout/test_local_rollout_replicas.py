"""Replicas of the local engine in real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from roll_core.builtin.local_rollout.backend import LocalRolloutBackend
from roll_core.builtin.local_rollout.choice import make_backend
from roll_core.builtin.local_rollout.linear import packing_works
from roll_core.builtin.local_rollout.replicas.backend import ReplicatedBackend
from roll_core.cluster import Executor, LocalExecutor, RayExecutor, Seat, WorkerHealth, WorkerLost
from roll_core.contracts import RolloutBackend, TensorInfo
from roll_core.errors import BackendError, ConfigError
from roll_core.types import Completion, GenerateRequest, PolicyRef, SamplingParams, VersionRun

LONG_S = 120.0
PROMPTS = [tuple(range(3, 3 + n)) for n in (4, 9, 1, 17, 30)]


class Weights:
    """A weight source over a dict of tensors."""

    def __init__(self, tensors: dict[str, torch.Tensor]) -> None:
        self.kept = tensors

    def manifest(self) -> list[TensorInfo]:
        return [TensorInfo(n, "float32", tuple(t.shape)) for n, t in self.kept.items()]

    def tensors(self) -> Any:
        yield from self.kept.items()


def weights_of(model: Any, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Weights:
    return Weights({n: (t.detach() * scale).to(dtype) for n, t in model.state_dict().items() if n != "lm_head.weight"})


def requests(count: int, prefix: str = "r", tokens: int = 24) -> list[GenerateRequest]:
    """Groups of four over prompts of several lengths, some truncated, some greedy."""
    made = []
    for i in range(count):
        sampling = SamplingParams(
            max_new_tokens=3 + tokens * (i % 5) // 4, top_k=5 * (i % 3 == 1), temperature=float(i % 7 != 6)
        )
        made.append(GenerateRequest(PROMPTS[i // 4 % 5], sampling, i, f"{prefix}{i}", group_key=f"{prefix}{i // 4}"))
    return made


async def generate(backend: RolloutBackend, asked: list[GenerateRequest]) -> list[Completion]:
    return list(await asyncio.gather(*map(backend.generate, asked)))


def assert_same(made: list[Completion], expected: list[Completion]) -> None:
    """Bit for bit, where the processor's library multiplies so."""
    for one, other in zip(made, expected, strict=True):
        assert one.request_id == other.request_id
        assert one.token_ids.tolist() == other.token_ids.tolist()
        if packing_works(torch.float32):
            assert one.logprobs.tobytes() == other.logprobs.tobytes()
        else:
            np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)
        assert one.versions == other.versions
        assert one.finish_reason == other.finish_reason
        assert one.columns.keys() == other.columns.keys()
        for name, column in one.columns.items():
            np.testing.assert_array_equal(column, other.columns[name])


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(LONG_S):
        while not is_so():
            await asyncio.sleep(0.02)


def kill(executor: Executor, role: str) -> None:
    pid = next(worker.pid for worker in executor.health() if worker.role == role)
    os.kill(pid, signal.SIGKILL)


def live(executor: LocalExecutor) -> dict[str, WorkerHealth]:
    return {worker.role: worker for worker in executor.health() if worker.is_alive}


def steps(backend: ReplicatedBackend) -> list[int]:
    return [member.steps for member in backend._fleet._members.values()]


@pytest.fixture(scope="module")
def executor() -> Iterator[LocalExecutor]:
    with LocalExecutor() as made:
        yield made


@pytest.fixture(scope="module")
def pair(executor: LocalExecutor, tiny: Path) -> Iterator[ReplicatedBackend]:
    """Two replicas with room for four requests each."""
    made = make_backend(
        model=tiny, seed=3, executor=executor, replicas=2, max_slots=4, precision="float32", device="cpu"
    )
    assert isinstance(made, ReplicatedBackend)
    yield made
    asyncio.run(made.close())


@pytest.fixture
def alone(tiny: Path) -> Iterator[LocalRolloutBackend]:
    """The engine in this process, with room for everything."""
    made = LocalRolloutBackend(model=tiny, seed=3, max_slots=64, precision="float32", device="cpu")
    yield made
    asyncio.run(made.close())


def test_same_tokens_logprobs_and_versions_as_in_the_driver(
    pair: ReplicatedBackend, alone: LocalRolloutBackend, executor: LocalExecutor
) -> None:
    assert isinstance(pair, RolloutBackend)
    asked = requests(40)
    expected = asyncio.run(generate(alone, asked))
    assert_same(asyncio.run(generate(pair, asked)), expected)
    assert set(live(executor)) == {"rollout-0", "rollout-1"}
    assert all(executor.transfers.by_stage()[f"rollout-{i}.take"].calls >= 12 for i in range(2))


def test_weights_reach_every_replica_as_one_transaction(
    pair: ReplicatedBackend, alone: LocalRolloutBackend, reference: Any
) -> None:
    asked = requests(24)
    for version, dtype in ((4, torch.float32), (5, torch.bfloat16)):
        for backend in (pair, alone):
            backend.sync_weights(weights_of(reference, 1.5, dtype), version)
            assert backend.policy_version == version
        made = asyncio.run(generate(pair, asked))
        assert {run.policy for one in made for run in one.versions} == {PolicyRef(version)}
        assert_same(made, asyncio.run(generate(alone, asked)))
    wrong = weights_of(reference, 3.0)
    del wrong.kept["model.norm.weight"]
    with pytest.raises(BackendError, match=r"missing: model\.norm\.weight"):
        pair.sync_weights(wrong, 6)
    assert pair.policy_version == 5
    assert_same(asyncio.run(generate(pair, asked)), made)


def test_a_killed_replica_is_replaced_and_its_requests_come_out_the_same(
    pair: ReplicatedBackend, alone: LocalRolloutBackend, executor: LocalExecutor, reference: Any
) -> None:
    for backend in (pair, alone):
        backend.sync_weights(weights_of(reference, 1.2), 7)
    asked = requests(24, "k", tokens=300)
    expected = asyncio.run(generate(alone, asked))

    async def scenario() -> None:
        task = asyncio.create_task(generate(pair, asked))
        await until(lambda: all(load > 0 for load in pair._fleet.loads().values()))
        kill(executor, "rollout-0")
        assert_same(await task, expected)
        pair.sync_weights(weights_of(reference, 1.3), 8)  # the fresh one may be starting still
        await until(lambda: min(pair._fleet.loads().values()) >= 0)
        alone.sync_weights(weights_of(reference, 1.3), 8)
        assert_same(await generate(pair, asked[:16]), await generate(alone, asked[:16]))
        assert len(live(executor)) == 2

    asyncio.run(scenario())


def test_weights_that_change_while_requests_run_split_their_versions(
    pair: ReplicatedBackend, executor: LocalExecutor, reference: Any
) -> None:
    pair.sync_weights(weights_of(reference), 8)
    sampling = SamplingParams(max_new_tokens=480, temperature=0.0)
    asked = [GenerateRequest(PROMPTS[i], sampling, i, f"v{i}") for i in range(2)]

    async def scenario() -> list[Completion]:
        task = asyncio.create_task(generate(pair, asked))
        await generate(
            pair, [GenerateRequest(PROMPTS[2], SamplingParams(max_new_tokens=2), 1, f"w{i}") for i in (0, 1)]
        )
        await asyncio.to_thread(pair.sync_weights, weights_of(reference), 9)
        return await task

    for one in asyncio.run(scenario()):
        assert [run.policy.version for run in one.versions] == [8, 9]
        assert one.versions[-1].stop == len(one.token_ids)


def test_abort_keeps_tokens_and_cancelling_frees_the_slot(pair: ReplicatedBackend) -> None:
    endless = SamplingParams(max_new_tokens=480, temperature=0.0)
    short = SamplingParams(max_new_tokens=3)

    async def scenario() -> tuple[Completion, Completion]:
        late = asyncio.create_task(pair.generate(GenerateRequest(PROMPTS[0], endless, 0, "late", "g")))
        await pair.generate(GenerateRequest(PROMPTS[1], short, 0, "short", "g"))  # on the same replica
        pair.abort("late")
        kept = await late
        before = steps(pair)
        running = [
            asyncio.create_task(pair.generate(GenerateRequest(PROMPTS[0], endless, i, f"e{i}"))) for i in range(9)
        ]
        await asyncio.sleep(0)
        with pytest.raises(BackendError, match="'e0' is running already"):
            await pair.generate(GenerateRequest(PROMPTS[0], endless, 0, "e0"))
        pair.abort("unknown")
        pair.abort("e0")
        for task in running[1:]:
            task.cancel()
        await generate(pair, [GenerateRequest(PROMPTS[1], short, i, f"s{i}") for i in range(8)])  # one in every slot
        ended = await asyncio.gather(*running[1:], return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in ended)
        assert all(now - was < 480 for now, was in zip(steps(pair), before, strict=True))
        early = await running[0]
        assert set(pair._fleet.loads().values()) == {0}
        return kept, early

    kept, early = asyncio.run(scenario())
    assert 0 < len(kept.token_ids) <= 480
    assert kept.versions == (VersionRun(0, len(kept.token_ids), PolicyRef(pair.policy_version)),)
    assert len(early.token_ids) < 480
    assert early.finish_reason == "abort"


def test_impossible_and_spent_requests(pair: ReplicatedBackend) -> None:
    with pytest.raises(BackendError, match="request 'x': the prompt is empty"):
        asyncio.run(pair.generate(GenerateRequest((), SamplingParams(max_new_tokens=3), 1, "x")))
    spent = GenerateRequest(PROMPTS[0], SamplingParams(max_new_tokens=2, top_k=3), 1, "x", prefix_ids=(5, 6))
    made = asyncio.run(pair.generate(spent))
    assert (len(made.token_ids), made.finish_reason, set(made.columns)) == (0, "length", {"keep_counts", "keep_ids"})


def test_replicas_join_and_leave_while_requests_run(
    pair: ReplicatedBackend, alone: LocalRolloutBackend, executor: LocalExecutor, reference: Any
) -> None:
    for backend in (pair, alone):
        backend.sync_weights(weights_of(reference), 10)
    asked = requests(24, "j", tokens=300)
    expected = asyncio.run(generate(alone, asked))

    async def scenario() -> None:
        task = asyncio.create_task(generate(pair, asked))
        await asyncio.to_thread(pair.scale, 3)
        assert len(pair._fleet.loads()) == 3
        assert_same(await task, expected)
        task = asyncio.create_task(generate(pair, asked))
        await until(lambda: all(load > 0 for load in pair._fleet.loads().values()))
        await asyncio.to_thread(pair.scale, 1)
        assert len(live(executor)) == len(pair._fleet.loads()) == 1
        assert_same(await task, expected)

    asyncio.run(scenario())
    with pytest.raises(ConfigError, match="at least one replica"):
        pair.scale(0)


def test_the_last_replica_lost_is_told_and_closing_is_quick(tiny: Path, reference: Any) -> None:
    async def scenario(executor: LocalExecutor) -> None:
        backend = make_backend(
            model=tiny, seed=3, executor=executor, replicas=1, max_restarts=0, precision="float32", device="cpu"
        )
        asked = [GenerateRequest(PROMPTS[0], SamplingParams(max_new_tokens=480), i, f"l{i}") for i in range(3)]
        tasks = [asyncio.create_task(backend.generate(one)) for one in asked]
        await asyncio.sleep(0)
        kill(executor, "rollout-0")
        for error in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(error, WorkerLost)
            assert "SIGKILL" in str(error)
        with pytest.raises(WorkerLost):
            backend.sync_weights(weights_of(reference), 1)
        await backend.close()
        await backend.close()
        with pytest.raises(BackendError, match="closed"):
            await backend.generate(asked[0])
        assert executor.health() == []

    with LocalExecutor() as executor:
        asyncio.run(scenario(executor))


def test_contradictions_are_config_errors(tiny: Path, pair: ReplicatedBackend) -> None:
    with pytest.raises(ConfigError, match=r"cluster\.executor starts no processes"):
        make_backend(model=tiny, seed=0, replicas=2)
    with pytest.raises(ConfigError, match="max_restarts"):
        make_backend(model=tiny, seed=0, replicas=-1)
    with (
        LocalExecutor(devices=["0"], seats={"rollout": (Seat(0, (0,)),)}) as planned,
        pytest.raises(ConfigError, match="has 1 seats for rollout, of which 1 are free"),
    ):
        make_backend(model=tiny, seed=0, executor=planned, replicas=2)

    async def barrier() -> None: ...

    pair.set_barrier(None)
    with pytest.raises(ConfigError, match=r"rollout\.early_stop: false"):
        pair.set_barrier(barrier)


def test_the_same_over_ray(tiny: Path, alone: LocalRolloutBackend, reference: Any) -> None:
    pytest.importorskip("ray")
    os.environ.setdefault("RAY_AUTH_MODE", "disabled")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster
    asked = requests(16, tokens=200)
    alone.sync_weights(weights_of(reference, 1.1, torch.bfloat16), 2)
    expected = asyncio.run(generate(alone, asked))

    async def scenario(executor: RayExecutor) -> list[Completion]:
        backend = make_backend(model=tiny, seed=3, executor=executor, replicas=2, precision="float32", device="cpu")
        backend.sync_weights(weights_of(reference, 1.1, torch.bfloat16), 2)
        task = asyncio.create_task(generate(backend, asked))
        await asyncio.sleep(0)
        kill(executor, "rollout-0")
        made = await task
        running = asyncio.create_task(backend.generate(asked[-1]))
        await asyncio.sleep(0)
        await backend.close()  # while a replica is being replaced
        with pytest.raises(BackendError, match="closed"):
            await running
        assert executor.health() == []
        return made

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
        try:
            with RayExecutor(address=cluster.address) as executor:
                assert_same(asyncio.run(scenario(executor)), expected)
        finally:
            cluster.shutdown()
