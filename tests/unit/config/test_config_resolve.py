from __future__ import annotations

import pytest

from roll_core.config.load import load_config
from roll_core.config.resolve import resolve_algorithm, resolve_eval_data, resolve_sampling
from roll_core.config.schema import AlgorithmConfig, ComponentRef, DomainConfig, KLConfig, RunConfig, SamplingConfig
from roll_core.errors import UnknownNameError


def run_config(domain: dict, **base) -> RunConfig:
    domain = {"data": "d.jsonl", "verifier": "v", **domain}
    return load_config(None, base={"model": {"path": "m"}, "domains": {"d": domain}, **base}).config


BASE = {"loss": {"use": "ppo_clip", "clip_low": 0.1}, "kl": {"coef": 0.1, "estimator": "k3"}, "agg": "token-mean"}


@pytest.mark.parametrize(
    ("own", "loss", "kl"),
    [
        ({}, {"use": "ppo_clip", "clip_low": 0.1}, (0.1, "k3")),
        ({"loss": {"use": "gspo"}}, {"use": "gspo"}, (0.1, "k3")),
        ({"loss": "gspo"}, {"use": "gspo"}, (0.1, "k3")),
        ({"loss": {"clip_high": 0.3}}, {"use": "ppo_clip", "clip_low": 0.1, "clip_high": 0.3}, (0.1, "k3")),
        ({"loss": {"use": "ppo_clip", "clip_low": 0.4}}, {"use": "ppo_clip", "clip_low": 0.4}, (0.1, "k3")),
        ({"kl": {"coef": 0.5}}, {"use": "ppo_clip", "clip_low": 0.1}, (0.5, "k3")),
        ({"kl": {"estimator": "k1"}}, {"use": "ppo_clip", "clip_low": 0.1}, (0.1, "k1")),
    ],
)
def test_a_domains_algorithm_is_merged_key_by_key(own, loss, kl):
    resolved = resolve_algorithm(run_config({"algorithm": own}, algorithm=BASE), "d")
    assert type(resolved) is AlgorithmConfig
    assert resolved.loss == ComponentRef(**loss)
    assert (resolved.kl.coef, resolved.kl.estimator) == kl
    assert resolved.advantage == ComponentRef(use="grpo")


def test_what_neither_sets_has_its_default():
    resolved = resolve_algorithm(run_config({"algorithm": {"advantage": {"eps": 1}}}), "d")
    assert resolved.advantage == ComponentRef(use="grpo", eps=1)
    assert resolved == AlgorithmConfig(advantage=ComponentRef(use="grpo", eps=1))


def test_without_an_override_the_runs_own_comes_back():
    config = run_config({}, algorithm=BASE)
    assert resolve_algorithm(config, "d") is config.algorithm
    assert resolve_sampling(config, "d") is config.rollout.sampling


def test_an_adaptive_coefficient_is_merged_too():
    base = {"kl": {"coef": 0.1, "adaptive": {"target": 2.0, "horizon": 50}}}
    resolved = resolve_algorithm(run_config({"algorithm": {"kl": {"adaptive": {"target": 3.0}}}}, algorithm=base), "d")
    assert resolved.kl.adaptive is not None
    assert (resolved.kl.adaptive.target, resolved.kl.adaptive.horizon) == (3.0, 50.0)


def test_objects_replace_and_inherit():
    def mine() -> None: ...

    config = RunConfig(
        model={"path": "m"},
        domains={
            "a": DomainConfig(data="x", verifier="v", algorithm=AlgorithmConfig(loss=ComponentRef(use=mine))),
            "b": DomainConfig(data="x", verifier="v", algorithm={"loss": {"clip_low": 1}}),
        },
        algorithm=AlgorithmConfig(loss=ComponentRef(use=mine, clip_high=2), kl=KLConfig(coef=0.1)),
    )
    assert resolve_algorithm(config, "a").loss == ComponentRef(use=mine, clip_high=2)
    assert resolve_algorithm(config, "b").loss == ComponentRef(use=mine, clip_high=2, clip_low=1)
    assert resolve_algorithm(config, "a").kl.coef == 0.1


def test_sampling_is_merged_key_by_key():
    config = run_config(
        {"sampling": {"max_new_tokens": 8}}, rollout={"sampling": {"temperature": 0.7, "max_new_tokens": 32}}
    )
    assert resolve_sampling(config, "d") == SamplingConfig(temperature=0.7, max_new_tokens=8)


def test_held_out_data_inherits_how_a_row_becomes_a_prompt():
    data = {
        "path": "train.jsonl",
        "columns": {"prompt": "q", "reference": "a"},
        "template": "Q: {prompt}",
        "system": "s",
        "chat": False,
        "shuffle": False,
        "limit": 3,
    }
    own = {"path": "test.jsonl", "columns": {"reference": "b"}, "system": None}
    resolved = resolve_eval_data(run_config({"data": data, "eval_data": own}).domains["d"])
    assert resolved is not None
    assert resolved.options == {"path": "test.jsonl"}
    assert (resolved.columns.prompt, resolved.columns.reference) == ("q", "b")
    assert (resolved.template, resolved.system, resolved.chat) == ("Q: {prompt}", None, False)
    assert (resolved.shuffle, resolved.limit) == (True, None)


def test_no_held_out_data():
    assert resolve_eval_data(run_config({}).domains["d"]) is None


def test_an_unknown_domain_has_a_near_match():
    with pytest.raises(UnknownNameError, match="no domain named 'dd'; did you mean 'd'"):
        resolve_algorithm(run_config({}), "dd")
