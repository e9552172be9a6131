"""TRL's own trainer takes our verifier as a reward function."""

from __future__ import annotations

import math

import pytest

from roll_core.adapters import trl_reward
from roll_core.testing.tiny import make_tiny_model

trl = pytest.importorskip("trl")


class Cautious:
    """Fails on every other completion of a batch, so that TRL meets rewards that are missing."""

    def verify(self, response, reference, *, prompt=None, rollout=None):
        from roll_core.types import Verdict

        return Verdict.error("the judge is down") if int(prompt.id) % 2 else Verdict.incorrect(score=0.5)


@pytest.mark.filterwarnings("ignore")
def test_grpo_trainer_takes_our_rewards_and_leaves_out_the_missing_ones(tmp_path):
    from datasets import Dataset

    model = make_tiny_model(tmp_path / "model")
    data = Dataset.from_list([{"prompt": f"{n} + 1 =", "answer": str(n + 1)} for n in range(8)])
    math_reward = trl_reward("math", reference="answer", workers=1)
    cautious = trl_reward(Cautious(), reference=None, workers=0)
    config = trl.GRPOConfig(
        output_dir=str(tmp_path / "run"),
        max_steps=2,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        logging_steps=1,
        report_to=[],
        use_cpu=True,
        bf16=False,
        save_strategy="no",
        disable_tqdm=True,
    )
    trainer = trl.GRPOTrainer(model=str(model), reward_funcs=[math_reward, cautious], args=config, train_dataset=data)
    try:
        trainer.train()
    finally:
        math_reward.close()
        cautious.close()
    logs = [entry for entry in trainer.state.log_history if "rewards/math/mean" in entry]
    assert len(logs) == 2
    for entry in logs:
        assert 0.0 <= entry["rewards/math/mean"] <= 1.0
        assert math.isclose(entry["rewards/Cautious/mean"], 0.5)  # the mean over those that were scored
        assert entry["Cautious/unscored_rate"] == 0.5
