"""Facts about a person as JSON (verifier `json_fields`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.errors import ConfigError
from roll_plugin_smalltasks.task import Instance, SmallTask, Split
from roll_plugin_smalltasks.words import CITIES, NAMES


class JsonPeople(SmallTask):
    """Write name, age and city of a person as a JSON object.

    The splits share no name, so a held-out answer cannot be remembered. Baselines: a constant answer is practically
    never right, and nor is a guess, since all three values come from the question; copying them is the task.

    Args:
        size: rows; None takes 1000.
        seed: chooses which instances, and their order.
        split: "train" or "heldout".
        min_age: smallest age in years.
        max_age: largest age in years.
    """

    name = "json_people"
    guess_rate = 0.0

    def __init__(
        self, *, size: int | None = None, seed: int = 0, split: Split = "train", min_age: int = 18, max_age: int = 80
    ) -> None:
        if not 0 <= min_age <= max_age:
            raise ConfigError(f"{self.name}: ages from {min_age} to {max_age} hold no one")
        self.min_age, self.max_age = min_age, max_age
        super().__init__(size=size, seed=seed, split=split)

    def count(self) -> int:
        """All combinations of name, age and city."""
        return len(NAMES) * len(CITIES) * (self.max_age - self.min_age + 1)

    def instance(self, index: int) -> Instance:
        """One person."""
        index, name = divmod(index, len(NAMES))
        age, city = divmod(index, len(CITIES))
        return {"name": NAMES[name], "age": self.min_age + age, "city": CITIES[city]}

    def key(self, instance: Instance) -> str:
        """The name."""
        return str(instance["name"])

    def prompt(self, instance: Instance) -> str:
        """The question."""
        return (
            f"{instance['name']} is {instance['age']} years old and lives in {instance['city']}. "
            'Write this as JSON with the keys "name", "age" and "city". Answer only with the JSON.'
        )

    def reference(self, instance: Instance) -> Mapping[str, Any]:
        """The fields of the object."""
        return dict(instance)
