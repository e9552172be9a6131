from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

from roll_core.cli.plan import plan_command

RUN = """
model: {path: MODEL}
domains:
  math: {data: m.jsonl, verifier: math_boxed}
batch: {prompts: 16, group_size: 8, max_prompt_tokens: 1024}
rollout: {sampling: {max_new_tokens: 2048}}
train: {strategy: {gradient_checkpointing: true}}
"""
MODEL = {
    "hidden_size": 1024,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 32000,
}


@pytest.fixture
def config(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps(MODEL))
    file = tmp_path / "run.yaml"
    file.write_text(RUN.replace("MODEL", str(tmp_path / "model")))
    return file


def run(*args):
    return CliRunner().invoke(plan_command, [str(arg) for arg in args])


def test_placement_memory_and_batch_are_printed(config):
    done = run(config, "--gpus", "16x80GB", "algorithm.kl.coef=0.1")
    assert done.exit_code == 0, done.output
    for part in (
        "16 processes on 0:0-7, 1:0-7",
        "optimiser",
        "reference",
        "an engine holds",
        "128 a step = 16 prompts",
    ):
        assert part in done.output, done.output
    assert "reference" not in run(config, "--gpus", "16x80GB").output
    found = json.loads(run(config, "--gpus", "2x24GB+8x80GB", "--json").output)
    assert found["batch"]["micro_tokens"] == 4096 and found["placement"]["devices"]["1:7"]["memory"] == 80 * 10**9
    assert (
        "critic"
        in json.loads(run(config, "--gpus", "8x80GB", "--json", "algorithm.advantage=gae").output)["placement"][
            "train_memory"
        ]
    )


def test_the_batch_arithmetic_is_the_one_on_paper(config):
    """64 prompts x 8, in 4 mini-batches twice: 128 rollouts an update; 8192 tokens hold two rollouts of 3072."""
    sizes = (
        "batch.prompts=64",
        "batch.mini_batches=4",
        "batch.epochs=2",
        "train.strategy.micro_tokens=8192",
        "steps=10",
    )
    batch = json.loads(run(config, "--gpus", "8x80GB", "--json", *sizes).output)["batch"]
    expected = {
        "rollouts": 512,
        "prompts_per_update": 16,
        "rollouts_per_update": 128,
        "updates_per_step": 8,
        "total_updates": 80,
        "max_rollout_tokens": 3072,
        "max_step_tokens": 512 * 3072,
        "max_response_tokens": 512 * 2048,
        "max_micro_batches": 64,
    }
    assert {name: batch[name] for name in expected} == expected


ROLLFILE = """
from roll_core.plugin.component import Component
from roll_core.plugin.hookspecs import hookimpl


def make(*, setup, executor=None, world_size: int | None = None, tensor_parallel: int = 1, micro_tokens: int = 4096):
    raise NotImplementedError


@hookimpl
def roll_register_train_strategies():
    return [Component("many", make, summary="a strategy with ranks")]
"""


def test_wishes_come_from_the_components_too(config, tmp_path):
    (tmp_path / "rollfile.py").write_text(ROLLFILE)
    rollfile = f"plugins.rollfile={tmp_path / 'rollfile.py'}"
    found = json.loads(run(config, "--gpus", "8x80GB", "--json", "cluster.train.tensor_parallel=2").output)
    assert (found["placement"]["tensor_parallel"], found["placement"]["data_parallel"]) == (2, 4)
    config.write_text(config.read_text().replace("{gradient_checkpointing: true}", "{use: many, tensor_parallel: 4}"))
    found = json.loads(run(config, "--gpus", "8x80GB", "--json", rollfile, "train.strategy.world_size=4").output)
    assert (found["placement"]["tensor_parallel"], found["placement"]["data_parallel"]) == (4, 1)
    done = run(config, "--gpus", "8x80GB", rollfile, "cluster.train.tensor_parallel=2")
    assert "train.strategy.tensor_parallel is 4 and cluster.train.tensor_parallel is 2; write one" in str(
        done.exception
    )


def test_what_cannot_be_planned_is_said(config):
    for args, message in (
        ((), "no devices to plan for"),
        (("--gpus", "8x1GB"), "no placement fits"),
        (
            ("--gpus", "8x80GB", "train.strategy.micro_tokens=500"),
            "a rollout may have 3072",
        ),
        (("--gpus", "8x80GB", "batch.max_prompt_tokens=9000"), "train.strategy.micro_tokens: a rollout may have 11048"),
        (("--gpus", "8x80GB", "model.path=smollm9"), "model.path: 'smollm9' is no model folder"),
        (("--gpus", "8x80GB", "train.strategy=locl"), "locl"),
    ):
        done = run(config, *args)
        assert done.exit_code != 0
        assert message in f"{done.output} {done.exception}"


def test_nothing_heavy_is_imported(config):
    code = (
        "import sys\nfrom roll_core.cli.plan import plan_command\n"
        f"plan_command.main([{str(config)!r}, '--gpus', '16x80GB'], standalone_mode=False)\n"
        "print([name for name in ('torch', 'ray', 'transformers') if name in sys.modules])"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
