from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roll_core.config.load import check_config
from roll_core.config.plan import BatchPlan, size_warnings


def test_the_arithmetic_of_a_batch(load, small, host):
    text = small + (
        "    sampling: {max_new_tokens: 200}\n"
        "  json: {data: j.jsonl, verifier: json_fields}\n"
        "steps: 50\n"
        "batch: {prompts: 12, group_size: 4, mini_batches: 3, epochs: 2, max_prompt_tokens: 100}\n"
        "rollout: {sampling: {max_new_tokens: 64}, max_draws: 5}\n"
        "train: {strategy: {micro_tokens: 1000}}\n"
    )
    plan = check_config(load(text), host)
    assert plan.as_dict() == {
        "prompts": 12,
        "group_size": 4,
        "mini_batches": 3,
        "epochs": 2,
        "steps": 50,
        "max_prompt_tokens": 100,
        "max_new_tokens": 200,
        "max_draws": 5,
        "micro_tokens": 1000,
        "rollouts": 48,
        "prompts_per_update": 4,
        "rollouts_per_update": 16,
        "updates_per_step": 6,
        "total_updates": 300,
        "max_rollout_tokens": 300,
        "max_response_tokens": 9600,
        "max_step_tokens": 14400,
        "max_micro_batches": 6,
        "draw_budget": 60,
    }
    text = "\n".join(plan.render())
    for part in ("48 a step = 12 prompts x 4 each", "300 in 50 steps", "at most 300 tokens", "at most 6 an update"):
        assert part in text


def test_the_token_budget_is_the_strategys_default(load, small, host):
    assert check_config(load(small), host).micro_tokens == 4096
    plan = check_config(load(small, host=None), None)
    assert (plan.micro_tokens, plan.max_micro_batches) == (None, None)
    assert "no token budget" in "\n".join(plan.render())


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        ("prompts: 10, mini_batches: 4", "batch.prompts 8 or 12, or batch.mini_batches 2 or 5"),
        ("prompts: 3, mini_batches: 4", "batch.prompts 4, or batch.mini_batches 3"),
        ("prompts: 7, mini_batches: 2", "batch.prompts 6 or 8, or batch.mini_batches 1 or 7"),
    ],
)
def test_uneven_mini_batches(fail, small, batch, message):
    text = fail(f"{small}batch: {{{batch}}}\n")
    assert text.startswith("batch.mini_batches (run.yaml:6): ")
    assert "cannot be divided evenly" in text and message in text


def test_a_rollout_longer_than_a_micro_batch(fail, small):
    message = fail(small, "train.strategy.micro_tokens=550")
    assert "a rollout may have 576 tokens (512 prompt + 64 response), more than the 550 of a micro-batch" in message
    assert "use micro_tokens 576 or more, or max_new_tokens 38 or less" in message
    assert message.endswith("use micro_tokens 576 or more") is False
    assert fail(small, "train.strategy.micro_tokens=100").endswith("use micro_tokens 576 or more")


def test_bounds_of_the_algorithm(fail, small):
    message = fail(small + "algorithm: {overlong: {buffer: 65}}\n")
    assert message == (
        "algorithm.overlong.buffer (run.yaml:6): 65 tokens are more than domain 'math' may generate "
        "(max_new_tokens 64); use 64 or less"
    )
    message = fail(small + "algorithm: {correction: {kind: seq_mask, low: 2}}\n")
    assert "algorithm.correction.low (run.yaml:6): 2.0 is not below correction.high 2.0" in message


def test_hosts_need_workers(fail, small):
    message = fail(f"{small}scoring: {{hosts: 1, workers: 0}}\n", "cluster.executor=local")
    assert message.startswith("scoring.workers (run.yaml:6): a verifier host judges in worker processes of its own")


def test_a_group_of_one_is_allowed_and_warned_of(load, small):
    assert size_warnings(load(small).config) == []
    [warning] = size_warnings(load(small, "batch.group_size=1", "filters=[informative_groups]").config)
    assert "batch.group_size is 1" in warning and "informative_groups" in warning


@given(
    lengths=st.lists(st.integers(1, 50), min_size=1, max_size=40),
    budget=st.integers(50, 200),
)
def test_micro_batches_filled_in_order_never_exceed_the_bound(lengths, budget):
    plan = BatchPlan(len(lengths), 1, 1, 1, 1, 20, 30, 1, budget)
    bins, room = 0, 0
    for length in lengths:
        if length > room:
            bins, room = bins + 1, budget
        room -= length
    assert plan.max_micro_batches is not None
    assert bins <= plan.max_micro_batches
