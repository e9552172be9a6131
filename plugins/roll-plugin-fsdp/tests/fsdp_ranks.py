"""What tests run inside ranks: losses that can be sent there, and a rank that shows its gradients."""

from __future__ import annotations

import os
import signal
import time

import torch

from roll_plugin_fsdp.options import FsdpOptions
from roll_plugin_fsdp.processes import join
from roll_plugin_fsdp.rank import Rank
from roll_plugin_fsdp.strategy import FsdpStrategy


class ProbeRank(Rank):
    def gradients(self, role):
        model = self._policy if role == "policy" else self._critic
        whole = {name: p.grad for name, p in model.trained().items()}
        return {n: None if g is None else g.full_tensor().cpu().numpy().copy() for n, g in whole.items()}

    def own_bytes(self):
        return sum(p.detach().to_local().nbytes for p in self._policy.trained().values())

    def groups(self):
        return torch.distributed.get_world_size(), list(self._ranks.mesh.shape)

    def process(self):
        return os.getpid()


class ProbeStrategy(FsdpStrategy):
    rank_factory = "fsdp_ranks:make_rank"

    def ask(self, method, *args):
        return self.team.call(method, *args, what=f"a test: {method}")

    def gradients(self, role="policy"):
        return self.ask("gradients", role)[0]


def make_rank(setup, options):
    checked = FsdpOptions(**options)
    return ProbeRank(setup, checked, join(checked))


def policy_gradient(inputs):
    inputs.metric("policy/logprob", inputs.logprobs)
    return -inputs.advantages * inputs.logprobs


def value_loss(inputs):
    inputs.metric("value", inputs.values)
    return (inputs.values - 3.0).square()


def entropy_bonus(inputs):
    return -inputs.entropy


def reference_kl(inputs):
    return (inputs.full_logprobs - inputs.ref_logprobs).square()


def infinite_where_marked(inputs):
    """Infinite for the tokens that the column `marked` marks, so that one rank alone has a bad gradient."""
    return -inputs.logprobs * torch.where(inputs.columns["marked"] > 0, float("inf"), 1.0)


def one_value_for_all(inputs):
    return inputs.logprobs.sum() if bool((inputs.columns["marked"] > 0).any()) else inputs.logprobs


class HasNoPickleError(Exception):
    def __reduce__(self):
        raise TypeError("no pickle")


def fail_where_marked(inputs):
    if bool((inputs.columns["marked"] > 0).any()):
        raise HasNoPickleError("7 is bad")
    return inputs.logprobs


def sleep_where_marked(inputs):
    if bool((inputs.columns["marked"] > 0).any()):
        time.sleep(600)
    return inputs.logprobs


def die_where_marked(inputs):
    if bool((inputs.columns["marked"] > 0).any()):
        print("my last words", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
    return inputs.logprobs
