"""Short descriptions of things (verifier `word_limit`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.errors import ConfigError
from roll_plugin_smalltasks.task import Instance, SmallTask, Split
from roll_plugin_smalltasks.words import SUBJECTS


class ShortDescription(SmallTask):
    """Describe something in a limited number of words.

    Baselines: only the length is checked, so any constant short text is right every time (constant rate 1, and so is
    a guess). The task shows that instructions about form are followed, not that descriptions are good.

    Args:
        size: rows; None takes all subjects of the split.
        seed: chooses which subjects, and their order.
        split: "train" or "heldout".
        max_words: the limit that the question names.
    """

    name = "short_description"
    guess_rate = 1.0

    def __init__(self, *, size: int | None = None, seed: int = 0, split: Split = "train", max_words: int = 10) -> None:
        if max_words < 1:
            raise ConfigError(f"{self.name}: max_words is {max_words}, it must be at least 1")
        self.max_words = max_words
        super().__init__(size=size, seed=seed, split=split)

    def count(self) -> int:
        """Number of subjects."""
        return len(SUBJECTS)

    def instance(self, index: int) -> Instance:
        """One subject."""
        return {"subject": SUBJECTS[index]}

    def key(self, instance: Instance) -> str:
        """The subject."""
        return str(instance["subject"])

    def prompt(self, instance: Instance) -> str:
        """The question."""
        return f"Describe {instance['subject']} in at most {self.max_words} words."

    def reference(self, instance: Instance) -> Mapping[str, Any]:  # the limit is the same for all
        """The limit."""
        return {"max_words": self.max_words}
