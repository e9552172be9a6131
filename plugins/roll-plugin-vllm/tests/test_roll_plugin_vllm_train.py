"""Whole runs that generate with the real vLLM (`make test-vllm`): what it sampled is what the trainer computes."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from importlib.util import find_spec

import numpy as np
import pytest
import torch

import roll_core as roll
from roll_core.builtin.local_train.weights import ModelWeights
from roll_core.testing.tiny import make_tiny_model
from roll_plugin_vllm.backend import VllmBackend
from roll_plugin_vllm.update import Update

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="needs vLLM: `make test-vllm` runs these tests"),
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),
]

FURTHER = json.loads(os.environ.get("ROLL_VLLM_OPTIONS", "{}"))
"""Options of the backend for machines with GPUs (see the README)."""
TOLERANCE = 1e-4
"""Of log-probs in float32."""
ROLLFILE = """
from roll_core import verifier


@verifier
def digits(response, reference):
    return sum(c.isdigit() for c in response) / len(response) if response else 0.0
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return make_tiny_model(tmp_path_factory.mktemp("tiny"), hidden=128, initializer_range=0.1)


@pytest.fixture
def config(model, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    (tmp_path / "digits.py").write_text(ROLLFILE)
    rows = [{"prompt": letter, "reference": ""} for letter in "abcdefgh"]
    return {
        "name": "tiny",
        "folder": str(tmp_path / "run"),
        "steps": 4,
        "model": {"path": str(model)},
        "domains": {"letters": {"data": {"use": "rows", "rows": rows}, "verifier": "digits"}},
        "batch": {"prompts": 4, "group_size": 4},
        "algorithm": {"loss": {"use": "decoupled_ppo"}},
        "rollout": {
            "backend": {"use": "vllm", "dtype": "float32", "kv_cache_gb": 0.25, "max_num_seqs": 16, **FURTHER},
            "sampling": {"max_new_tokens": 24},
        },
        "train": {"strategy": {"use": "local", "precision": "float32"}, "optim": {"lr": 1e-3}},
        "scoring": {"workers": 1},
        "plugins": {"rollfile": str(tmp_path / "digits.py")},
    }


class Recorder:
    """A tracker that keeps every rollout."""

    def __init__(self):
        self.rollouts = []

    def start(self, run):
        pass

    def log(self, step, metrics):
        pass

    def log_rollouts(self, step, groups):
        self.rollouts += [rollout for group in groups for rollout in group.rollouts]

    def finish(self, status):
        pass


@pytest.fixture
def published(monkeypatch):
    """Weights by version, copied as the trainer publishes them."""
    versions = {}
    sync = VllmBackend.sync_weights

    def recorded(self, source, version):
        versions[version] = {name: tensor.clone() for name, tensor in source.tensors()}
        sync(self, source, version)

    monkeypatch.setattr(VllmBackend, "sync_weights", recorded)
    return versions


def worst_difference(rollouts, published, model):
    """Largest difference of a token's log-prob from that under the weights of the version that it carries."""
    from transformers import AutoModelForCausalLM

    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    worst = 0.0
    for version, weights in published.items():
        network.load_state_dict(weights, strict=False)
        for rollout in rollouts:
            segment = rollout.segments[0]
            runs = [run for run in segment.versions if run.policy.version == version]
            if not runs:
                continue
            ids = torch.tensor(segment.token_ids.astype(np.int64))
            with torch.no_grad():
                own = torch.log_softmax(network(ids[None]).logits[0, :-1], -1).gather(1, ids[1:, None])[:, 0].numpy()
            for run in runs:
                said = segment.rollout_logprobs[run.start : run.stop]
                worst = max(worst, np.abs(own[run.start - 1 : run.stop - 1] - said).max())
    return worst


def test_a_synchronous_run_trains_on_what_vllm_sampled(config, published, model):
    recorder, was_imported = Recorder(), "vllm" in sys.modules
    run = roll.train(**config | {"trackers": [recorder]})
    assert run.result.status == "finished"
    assert max(row["policy/mismatch_abs"] for row in run.result.metrics) < TOLERANCE
    assert {row["rollout/staleness_max"] for row in run.result.metrics} == {0.0}
    assert len(recorder.rollouts) == 4 * 16
    assert worst_difference(recorder.rollouts, published, model) < TOLERANCE
    assert ("vllm" in sys.modules) == was_imported, "the trainer's process imported vLLM"


def test_an_asynchronous_run_goes_on_when_a_replica_is_killed(config, published, model, monkeypatch):
    """Weights change under running requests, and one of the replicas is killed while it generates."""
    recorder, killed, backends = Recorder(), [], []
    sync = VllmBackend.sync_weights

    def kill_once(self, source, version):
        sync(self, source, version)
        backends[:] = [self]
        if version == 2:
            killed.append(self._fleet._members["rollout-0"].link._group.greeting(0).pid)
            threading.Timer(0.05, os.kill, (killed[0], signal.SIGKILL)).start()

    monkeypatch.setattr(VllmBackend, "sync_weights", kill_once)
    backend = config["rollout"]["backend"] | {"replicas": 2}
    rollout = {"mode": "async", "max_staleness": 2, "backend": backend, "sampling": {"max_new_tokens": 150}}
    run = roll.train(
        **config | {"steps": 6, "rollout": rollout, "trackers": [recorder], "cluster": {"executor": "local"}}
    )
    assert run.result.status == "finished"
    assert len(killed) == 1
    rows = run.result.metrics
    assert len(rows) == 6
    assert [row["rollout/groups_admitted"] for row in rows] == [4] * 6
    assert max(row["rollout/staleness_max"] for row in rows) <= 2
    assert sum(row["rollout/groups_drawn"] for row in rows) == 6 * 4
    several = [rollout for rollout in recorder.rollouts if len(rollout.segments[0].versions) > 1]
    assert several, "no rollout was interrupted by new weights"
    assert worst_difference(recorder.rollouts, published, model) < TOLERANCE


@pytest.mark.skipif(not hasattr(ModelWeights, "adapter_config"), reason="the trainer publishes no adapters")
def test_a_lora_run_syncs_only_its_adapter(config, monkeypatch):
    kinds = []
    of = Update.of.__func__

    def recorded(cls, source, version, **options):
        update = of(cls, source, version, **options)
        kinds.append(update.is_adapter)
        return update

    monkeypatch.setattr(Update, "of", classmethod(recorded))
    backend = config["rollout"]["backend"] | {"max_lora_rank": 8}
    model = config["model"] | {"lora": {"rank": 8, "alpha": 32}}
    run = roll.train(**config | {"model": model, "rollout": config["rollout"] | {"backend": backend}})
    assert run.result.status == "finished"
    assert kinds == [True] * 5
    assert max(row["policy/mismatch_abs"] for row in run.result.metrics) < 10 * TOLERANCE
    assert run.result.metrics[-1]["policy/mismatch_abs"] > 0
