"""The real engine, on the CPU build (`make test-vllm`). Minutes, most of it starting engines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.cluster import WorkerLost
from roll_core.contracts import TensorInfo
from roll_core.errors import BackendError
from roll_core.types import GenerateRequest, SamplingParams
from roll_plugin_vllm.backend import VllmBackend, make_backend
from roll_plugin_vllm.options import VllmOptions

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM: `make test-vllm` runs these tests"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
]

PROMPT = (1, 20, 11, 25, 12, 2)
SMALL = {"kv_cache_gb": 0.25, "max_model_len": 1024, "max_num_seqs": 8}
LONG = 600
"""Tokens that take long enough to be interrupted."""


@pytest.fixture(scope="module", autouse=True)
def _children_find_modules():
    """vLLM's processes are fresh ones."""
    os.environ["PYTHONPATH"] = ":".join(path for path in sys.path if path)
    os.environ["OMP_NUM_THREADS"] = "1"


def make_model(folder: Path, seed: int, *, tied: bool = True) -> Path:
    """A Llama whose shapes vLLM computes the way it computes real ones: heads of 32, weights that are packed."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=512,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return [make_model(folder / str(seed), seed) for seed in range(2)]


class Weights:
    """What a training strategy publishes: every tensor once."""

    def __init__(self, folder):
        self.model = load(folder)
        unique = {id(value): (name, value) for name, value in reversed(self.model.state_dict(keep_vars=True).items())}
        self.state = {name: value.detach() for name, value in reversed(unique.values())}

    def manifest(self):
        return [TensorInfo(n, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for n, t in self.state.items()]

    def tensors(self):
        yield from self.state.items()


class Fewer(Weights):
    """Lacks its last tensors."""

    def __init__(self, folder):
        super().__init__(folder)
        self.state = dict(list(self.state.items())[:-3])


def load(folder, dtype=torch.float32):
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)


def request(name="r", seed=0, prefix=(), group="g", **sampling):
    return GenerateRequest(PROMPT, SamplingParams(**{"max_new_tokens": 24, **sampling}), seed, name, group, prefix)


def greedy(model, count=24):
    with torch.no_grad():
        made = model.generate(
            torch.tensor([PROMPT]), max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    return made[0, len(PROMPT) :].tolist()


def check_greedy(model, done, version, count=LONG):
    """Every token is the most probable one, but for rounding, and carries its version and log-prob."""
    assert len(done.token_ids) == count
    assert {run.policy.version for run in done.versions} == {version}
    tokens = torch.tensor([[*PROMPT, *done.token_ids.tolist()]])
    with torch.no_grad():
        said = torch.log_softmax(model(tokens).logits[0, len(PROMPT) - 1 : -1].float(), -1)
    chosen = said.gather(1, tokens[0, len(PROMPT) :, None])[:, 0]
    assert (said.max(-1).values - chosen).max() < 1e-3
    assert np.abs(chosen.numpy() - done.logprobs).max() < 1e-4


def logprobs(model, done, sampling):
    """Of the completion's tokens under the distribution they were sampled from, by transformers."""
    tokens = torch.tensor([[*PROMPT, *done.token_ids.tolist()]])
    with torch.no_grad():
        logits = model(tokens).logits[0, len(PROMPT) - 1 : -1].float() / (sampling.temperature or 1.0)
    if done.columns:
        ends = np.cumsum(done.columns["keep_counts"])
        kept = torch.full_like(logits, float("-inf"))
        for row, (end, count) in enumerate(zip(ends, done.columns["keep_counts"], strict=True)):
            ids = torch.tensor(done.columns["keep_ids"][end - count : end].astype(np.int64))
            kept[row, ids] = logits[row, ids]
        logits = kept
    chosen = torch.tensor(done.token_ids.astype(np.int64))[:, None]
    return torch.log_softmax(logits, -1).gather(1, chosen)[:, 0].numpy()


def served(body, limit_s=240, **arguments):
    async def run():
        backend = make_backend(seed=0, **{**SMALL, "dtype": "float32", **arguments})
        try:
            await asyncio.wait_for(body(backend), limit_s)
        finally:
            await backend.close()

    asyncio.run(run())


def test_samples_and_weights_agree_with_transformers(models):
    """One engine for everything that needs no other one, since starting it takes longest."""

    async def body(backend):
        old, new = load(models[0]), load(models[1])
        assert (await backend.generate(request(temperature=0.0))).token_ids.tolist() == greedy(old)
        for sampling in ({}, {"temperature": 0.6}, {"top_k": 5}, {"top_p": 0.7}, {"top_k": 9, "top_p": 0.8}):
            one = request(**sampling)
            done = await backend.generate(one)
            assert np.abs(logprobs(old, done, one.sampling) - done.logprobs).max() < 1e-4, sampling
            if one.sampling.is_truncated:
                assert done.columns["keep_counts"].max() <= (one.sampling.top_k or 256)
        await check_resuming(backend)
        await check_updates(backend, models, old, new)

    served(body, model=models[0])


async def check_resuming(backend):
    whole = await backend.generate(request(top_p=0.9))
    head = tuple(whole.token_ids[:7].tolist())
    rest = await backend.generate(request("rest", prefix=head, top_p=0.9))
    assert [*head, *rest.token_ids.tolist()] == whole.token_ids.tolist()


async def check_updates(backend, models, old, new):
    with pytest.raises(BackendError, match=r"version 1 were not taken over.*lack what"):
        backend.sync_weights(Fewer(models[1]), 1)
    kept = await backend.generate(request(temperature=0.0))
    assert (kept.token_ids.tolist(), kept.versions[-1].policy.version) == (greedy(old), 0)
    source = Weights(models[1])
    own = request(temperature=0.0, max_new_tokens=LONG).sampling
    waves = 3 * SMALL["max_num_seqs"]  # so that some of them are running, however long an update takes
    tasks = await begun(backend, [request(f"long{i}", temperature=0.0, max_new_tokens=LONG) for i in range(waves)], 0)
    backend.sync_weights(source, 2)
    done = await backend.generate(request(temperature=0.0))
    assert done.token_ids.tolist() == greedy(new)
    assert {run.policy.version for run in done.versions} == {2}
    assert np.abs(logprobs(new, done, request(temperature=0.0).sampling) - done.logprobs).max() < 1e-4
    several = [done for done in await asyncio.gather(*tasks) if len(done.versions) > 1]
    assert several, "no request was running when the weights changed"
    for across in several:
        assert [run.policy.version for run in across.versions] == [0, 2]
        swap = across.versions[0].stop
        expected = np.concatenate([logprobs(old, across, own)[:swap], logprobs(new, across, own)[swap:]])
        assert np.abs(expected - across.logprobs).max() < 1e-4
    with pytest.raises(BackendError, match=r"temperature between 0 and 0\.01"):
        await backend.generate(request(temperature=0.001))


async def begun(backend, requests, tokens=2):
    """Tasks that serve requests, all of which have made some tokens."""
    tasks = [asyncio.ensure_future(backend.generate(one)) for one in requests]
    await asyncio.sleep(0)  # they are sent
    for one, task in zip(requests, tasks, strict=True):
        while not task.done() and len(getattr(backend._running.get(one.request_id), "tokens", ())) < tokens:
            await asyncio.sleep(0.005)
    return tasks


def processes_of_group(leader):
    """A replica's process, vLLM's engine process and its worker stay in one process group."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if os.getpgid(int(entry.name)) == leader:
                    found.add(int(entry.name))
    return found


def test_a_killed_replica_is_replaced_and_its_requests_go_on(models):
    """Two replicas in worker processes; what they made in the end is what an undisturbed engine makes."""

    new = load(models[1])

    async def body(backend):
        backend.sync_weights(Weights(models[1]), 3)
        many = [request(f"r{i}", group=f"g{i}", temperature=0.0, max_new_tokens=LONG) for i in range(2)]
        tasks = await begun(backend, many)
        victim = pid_of(backend, "rollout-0")
        engines = processes_of_group(victim)
        os.kill(victim, signal.SIGKILL)
        for done in await asyncio.gather(*tasks):
            check_greedy(new, done, 3)
        while not all(health.is_live for health in backend.health()):
            await asyncio.sleep(0.2)
        assert sum(health.restarts for health in backend.health()) == 1
        assert len(engines) >= 3
        assert not engines & processes_of_group(victim)
        for done in await asyncio.gather(*map(backend.generate, many)):
            check_greedy(new, done, 3)

    served(body, model=models[0], replicas=2)


def pid_of(backend, name):
    return backend._fleet._members[name].link._group.greeting(0).pid


def test_when_no_replica_can_be_replaced_that_is_said_and_the_end_is_quick(models):
    async def body(backend):
        (task,) = await begun(backend, [request(max_new_tokens=LONG)])
        os.kill(pid_of(backend, "rollout-0"), signal.SIGKILL)
        with pytest.raises(WorkerLost, match=r"every replica has failed; the last one, rollout-0: .*SIGKILL"):
            await task
        with pytest.raises(WorkerLost, match="every replica has failed"):
            backend.sync_weights(Weights(models[1]), 1)
        started = time.monotonic()
        await backend.close()
        assert time.monotonic() - started < 10

    served(body, model=models[0], max_restarts=0)


def test_on_ray_replicas_join_and_are_killed_and_weights_come_over_gloo(models):
    """One joins, the other is killed; both take the next weights."""
    import ray

    from roll_core.cluster import RayExecutor

    old, new = load(models[0]), load(models[1])

    async def body(backend):
        await asyncio.to_thread(backend.sync_weights, Weights(models[1]), 4)
        await asyncio.to_thread(backend.scale, 2)
        many = [request(f"r{i}", group=f"g{i}", temperature=0.0, max_new_tokens=LONG) for i in range(4)]
        tasks = await begun(backend, many)
        os.kill(pid_of(backend, "rollout-0"), signal.SIGKILL)
        for done in await asyncio.gather(*tasks):
            check_greedy(new, done, 4)
        while not all(health.is_live for health in backend.health()):
            await asyncio.sleep(0.2)
        await asyncio.to_thread(backend.sync_weights, Weights(models[0]), 5)
        again = [request(f"again{i}", group=f"again{i}", temperature=0.0) for i in range(4)]
        for done in await asyncio.gather(*map(backend.generate, again)):
            check_greedy(old, done, 5, 24)
        assert [(health.name, health.restarts) for health in backend.health()] == [("rollout-0", 1), ("rollout-1", 0)]

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)  # no other Ray of the machine
    try:
        with RayExecutor() as executor:
            served(body, 400, model=models[0], executor=executor, transfer="gloo")
    finally:
        ray.shutdown()


class AdapterWeights(Weights):
    """A peft model, published as its adapter alone."""

    def __init__(self, folder, seed):
        from peft import LoraConfig, get_peft_model

        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.model = get_peft_model(
                load(folder), LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "v_proj", "down_proj"])
            )
            for name, parameter in self.model.named_parameters():
                if "lora_B" in name:
                    torch.nn.init.normal_(parameter, std=0.2)

    def adapter_config(self):
        return self.model.peft_config["default"].to_dict()

    def adapter_manifest(self):
        return [TensorInfo(n, "float32", tuple(t.shape)) for n, t in self.adapter_tensors()]

    def adapter_tensors(self):
        from peft import get_peft_model_state_dict

        yield from get_peft_model_state_dict(self.model).items()


def test_only_the_adapter_is_synced(models):
    async def body(backend):
        for version, seed in enumerate((1, 2), start=1):
            source = AdapterWeights(models[0], seed)
            backend.sync_weights(source, version)
            one = request(f"r{version}")
            done = await backend.generate(one)
            assert {run.policy.version for run in done.versions} == {version}
            assert np.abs(logprobs(source.model, done, one.sampling) - done.logprobs).max() < 1e-3
            assert np.abs(logprobs(load(models[0]), done, one.sampling) - done.logprobs).max() > 0.1

    served(body, model=models[0], max_lora_rank=8)


def test_what_the_cpu_build_cannot_do_is_said(models):
    from roll_plugin_vllm.versions import supported_build

    if not supported_build().is_cpu:
        pytest.skip("this build has a sleep mode")
    with pytest.raises(BackendError, match="CPU build has no sleep mode"):
        VllmBackend(model=models[0], seed=0, options=VllmOptions(sleep_mode=True))


class Lent:
    """A backend that the kit closes after each check, and that serves the next one with its first weights."""

    def __init__(self, backend):
        self._backend = backend

    def __getattr__(self, name):
        return getattr(self._backend, name)

    async def close(self):
        pass


def test_conformance():
    """The kit's checks on one engine, which `tests/contract` starts anew for each of them."""
    from roll_core.plugin.component import Component
    from roll_core.testing import bind_checks
    from roll_core.testing.context import tiny_model

    backend = make_backend(model=tiny_model(0), seed=0, **{**SMALL, "max_model_len": 512, "dtype": "float32"})

    def lend(*, model: Path, seed: int) -> Lent:
        backend.sync_weights(Weights(model), backend.policy_version + 1)
        return Lent(backend)

    try:
        results = [check.result() for check in bind_checks(Component("lent", lend), "rollout_backends")]
    finally:
        asyncio.run(backend.close())
    assert sum(result.outcome == "passed" for result in results) >= 8
    assert [(result.check, result.reason) for result in results if result.outcome == "failed"] == []
