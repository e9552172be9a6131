"""A policy loss written in the script that uses it, given to the run as the function itself.

python examples/custom_loss.py [--model FOLDER] [--steps N] [--small]
"""

import argparse

import roll_core as roll
from roll_core.contracts import LossInputs
from roll_plugin_smalltasks import AddNumbers


@roll.policy_loss(requires=["old_logprobs"])
def hinge(inputs: LossInputs, *, margin: float = 0.2):  # noqa: ANN201  # a tensor, and torch need not be imported
    """PPO in log space: no gradient once a token has moved by `margin` where its advantage pushes it."""
    moved = inputs.logprobs - inputs.old_logprobs
    inputs.metric("policy/ratio", moved.exp())
    return -inputs.advantages * moved.clamp(-margin, margin)


def main() -> None:
    """Train a few steps and print the score of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="a Hugging Face folder or an installed model's name")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="a few short answers a step, to see that it runs")
    given = parser.parse_args()
    run = roll.train(
        name="custom-loss",
        steps=given.steps,
        model={"path": given.model},
        domains={
            "sums": {
                "data": {"use": AddNumbers()},
                "verifier": "math",
                "sampling": {"max_new_tokens": 4 if given.small else 16},
            }
        },
        algorithm={"advantage": "rloo", "loss": {"use": hinge, "margin": 0.3}},
        batch={"prompts": 2, "group_size": 2} if given.small else {"prompts": 8, "group_size": 8, "mini_batches": 2},
        train={"optim": {"lr": 2e-5}},
    )
    for step, metrics in enumerate(run.result.metrics, 1):
        print(step, round(metrics["reward/score"], 3), round(metrics["policy/ratio"], 3))


if __name__ == "__main__":
    main()
