"""The quickstart from Python: components are objects and plain functions, nothing is registered.

python examples/quickstart.py [--model FOLDER] [--steps N] [--small]
"""

import argparse
import json
import re

import roll_core as roll
from roll_plugin_smalltasks import AddNumbers, JsonPeople


def right_number(response: str, reference: object) -> bool:
    """The last number of the response is the reference."""
    numbers = re.findall(r"-?\d+", response)
    return bool(numbers) and numbers[-1] == str(reference)


def same_object(response: str, reference: dict[str, object]) -> bool:
    """The response holds a JSON object that equals the reference."""
    found = re.search(r"\{.*?\}", response, re.DOTALL)
    try:
        return found is not None and json.loads(found[0]) == reference
    except ValueError:
        return False


def main() -> None:
    """Train and show held-out accuracy before and after."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="a Hugging Face folder or an installed model's name")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--small", action="store_true", help="a few short answers a step, to see that it runs")
    given = parser.parse_args()
    n, held_out, tokens = (2, 4, 4) if given.small else (8, 60, 48)

    sums = {"data": AddNumbers(high=15), "eval_data": AddNumbers(high=15, split="heldout", size=held_out)}
    people = {"data": JsonPeople(), "eval_data": JsonPeople(split="heldout", size=held_out)}
    run = roll.train(
        name="quickstart-py",
        steps=given.steps,
        model={"path": given.model},
        domains={"sums": sums | {"verifier": right_number}, "people": people | {"verifier": same_object}},
        rollout={"sampling": {"max_new_tokens": tokens}},
        batch={"prompts": n, "group_size": n},
        train={"optim": {"lr": 2e-5}},
    )
    print(json.dumps(run.summary, indent=2))


if __name__ == "__main__":
    main()
