"""What must be computed follows from what components require; contradictions are refused."""

from __future__ import annotations

import logging

import pytest

from roll_core.config.schema import CriticConfig
from roll_core.credit import Credit, required_columns
from roll_core.errors import ConfigError


@pytest.mark.parametrize(
    ("values", "updates", "expected"),
    [
        ({}, 1, set()),
        ({}, 2, {"old_logprobs"}),
        ({"loss": "reinforce"}, 4, set()),
        ({"loss": "dppo"}, 4, set()),
        ({"loss": "decoupled_ppo"}, 1, set()),
        ({"loss": "decoupled_ppo"}, 2, {"old_logprobs"}),
        ({"kl": {"coef": 0.0, "where": "reward"}}, 1, set()),
        ({"kl": {"coef": 0.1}}, 1, {"ref_logprobs"}),
        ({"kl": {"coef": 0.1, "where": "reward"}}, 1, {"ref_logprobs", "old_logprobs"}),
        ({"correction": {"kind": "token_tis"}}, 1, {"old_logprobs"}),
        ({"advantage": "gae"}, 1, {"values"}),
        ({"advantage": "remax"}, 1, {"greedy_rewards"}),
        ({"entropy_coef": 0.01}, 1, set()),
    ],
)
def test_required_columns(values, updates, expected, algorithm):
    assert required_columns({"math": algorithm(**values)}, updates_per_batch=updates) == expected


def test_required_columns_are_the_union_over_domains(algorithm):
    algorithms = {"a": algorithm(advantage="gae"), "b": algorithm(kl={"coef": 0.1})}
    assert required_columns(algorithms, updates_per_batch=1) == {"values", "ref_logprobs"}


def test_what_a_plugin_reads_is_required_and_model_outputs_are_not_columns(algorithm):
    class Distil:
        def requirements(self):
            return {"logprobs@teacher", "entropy", "full_logprobs", "rollout_logprobs"}

        def __call__(self, inputs):
            return inputs.logprobs

    algorithms = {"a": algorithm(loss={"use": Distil()})}
    assert required_columns(algorithms, updates_per_batch=1) == {"logprobs@teacher"}


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"loss": "dppo", "correction": {"kind": "token_tis"}}, "correct twice"),
        ({"loss": "decoupled_ppo", "correction": {"kind": "geo_mask"}}, "correct twice"),
        ({"correction": {"kind": "token_tis", "low": 0.5}}, "bounds masks only"),
        ({"correction": {"kind": "token_mask", "low": 3.0, "high": 2.0}}, "above"),
        ({"kl": {"coef": 0.0, "adaptive": {"target": 0.1}}}, "kl.adaptive has no effect"),
        ({"advantage": "gae"}, "no critic"),
        ({"agg_length": 100}, "agg_length=100 has no effect"),
        ({"overlong": {"buffer": 17}}, "larger than max_new_tokens=16"),
    ],
)
def test_contradictions_are_refused_and_name_the_domain(values, message, algorithm):
    with pytest.raises(ConfigError, match=message) as caught:
        Credit({"math": algorithm(**values)}, mini_batches=1, epochs=1, seed=0, critic=None)
    assert "domain 'math'" in str(caught.value)


def test_no_domain_at_all():
    with pytest.raises(ConfigError, match="at least one"):
        Credit({}, mini_batches=1, epochs=1, seed=0, critic=None)


def test_a_kl_loss_that_regularises_nothing_warns(algorithm, caplog):
    with caplog.at_level(logging.WARNING):
        Credit(
            {"math": algorithm(kl={"coef": 0.1, "estimator": "k1"})},
            mini_batches=1,
            epochs=1,
            seed=0,
            critic=CriticConfig(),
        )
    assert "gradient zero" in caplog.text
