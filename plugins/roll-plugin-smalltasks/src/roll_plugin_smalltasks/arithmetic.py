"""Tasks on whole numbers, answered with a number (verifier `math`)."""

from __future__ import annotations

import itertools
from typing import Any

from roll_core.errors import ConfigError
from roll_plugin_smalltasks.task import Instance, SmallTask, Split


class _OnNumbers(SmallTask):
    """Instances are `arity` numbers from low to high; their order does not matter for the split."""

    arity: int
    """Numbers in an instance."""

    def __init__(self, *, size: int | None, seed: int, split: Split, low: int, high: int) -> None:
        if high - low + 1 < self.arity:
            raise ConfigError(
                f"{self.name}: the range low={low} to high={high} holds fewer than {self.arity} different numbers"
            )
        self.low, self.high = low, high
        super().__init__(size=size, seed=seed, split=split)

    def count(self) -> int:
        """All ordered choices, with repetition."""
        return int((self.high - self.low + 1) ** self.arity)

    def numbers(self, index: int) -> list[int]:
        """Instance number `index`, written in base (high - low + 1)."""
        base = self.high - self.low + 1
        digits = []
        for _ in range(self.arity):
            index, digit = divmod(index, base)
            digits.append(self.low + digit)
        return digits

    def key(self, instance: Instance) -> str:
        """The numbers, sorted: 3 + 4 and 4 + 3 stay together."""
        return ",".join(str(n) for n in sorted(v for v in _flat(instance.values())))


class AddNumbers(_OnNumbers):
    """The sum of two numbers.

    Baselines in the default range (78 rows to train on, 22 held out): the best constant answer is right in 0.10 of
    the training and 0.18 of the held-out rows, a guess among the 19 sums in 0.05. With two-digit numbers (low=10,
    high=99) the best constant answer is right in about 0.02.

    Args:
        size: rows; None takes all there are, at most 1000.
        seed: chooses which instances, and their order.
        split: "train" or "heldout".
        low: smallest number.
        high: largest number.
    """

    name = "add_numbers"
    guess_rate = 1 / 19
    arity = 2

    def __init__(
        self, *, size: int | None = None, seed: int = 0, split: Split = "train", low: int = 0, high: int = 9
    ) -> None:
        super().__init__(size=size, seed=seed, split=split, low=low, high=high)

    def instance(self, index: int) -> Instance:
        """The two numbers."""
        a, b = self.numbers(index)
        return {"a": a, "b": b}

    def prompt(self, instance: Instance) -> str:
        """The question."""
        return f"What is {instance['a']} + {instance['b']}? Answer with only the number."

    def reference(self, instance: Instance) -> str:
        """The sum."""
        return str(instance["a"] + instance["b"])


class LargerNumber(_OnNumbers):
    """The larger of two different numbers; it stands first as often as second.

    Baselines: naming either number at random is right in 0.5, the best constant answer in 0.03 of the default
    range. A pass rate that rises to 0.5 has only learnt the form.

    Args:
        size: rows; None takes all there are, at most 1000.
        seed: chooses which instances, and their order.
        split: "train" or "heldout".
        low: smallest number.
        high: largest number.
    """

    name = "larger_number"
    guess_rate = 1 / 2
    arity = 2

    def __init__(
        self, *, size: int | None = None, seed: int = 0, split: Split = "train", low: int = 10, high: int = 99
    ) -> None:
        super().__init__(size=size, seed=seed, split=split, low=low, high=high)

    def instance(self, index: int) -> Instance | None:
        """The two numbers, if they differ."""
        a, b = self.numbers(index)
        return {"a": a, "b": b} if a != b else None

    def prompt(self, instance: Instance) -> str:
        """The question."""
        return f"Which is larger, {instance['a']} or {instance['b']}? Answer with only the number."

    def reference(self, instance: Instance) -> str:
        """The larger one."""
        return str(max(instance["a"], instance["b"]))


class MaxOfFour(_OnNumbers):
    """The largest of four different numbers.

    Baselines: naming one of the four at random is right in 0.25, the best constant answer in about 0.05 of the default
    range.

    Args:
        size: rows; None takes 1000.
        seed: chooses which instances, and their order.
        split: "train" or "heldout".
        low: smallest number.
        high: largest number.
    """

    name = "max_of_four"
    guess_rate = 1 / 4
    arity = 4

    def __init__(
        self, *, size: int | None = None, seed: int = 0, split: Split = "train", low: int = 10, high: int = 99
    ) -> None:
        super().__init__(size=size, seed=seed, split=split, low=low, high=high)

    def instance(self, index: int) -> Instance | None:
        """The four numbers, if they differ."""
        numbers = self.numbers(index)
        return {"numbers": numbers} if len(set(numbers)) == self.arity else None

    def prompt(self, instance: Instance) -> str:
        """The question."""
        listed = ", ".join(map(str, instance["numbers"]))
        return f"What is the largest of {listed}? Answer with only the number."

    def reference(self, instance: Instance) -> str:
        """The largest one."""
        return str(max(instance["numbers"]))


class SortNumbers(_OnNumbers):
    """Different numbers from smallest to largest, comma-separated; the given order is never the sorted one.

    Baselines for three numbers: giving them back in a random order is right in 1/6, the best constant answer in 0.02
    of the training and 0.05 of the held-out rows of the default range (320 and 100 rows).

    Args:
        size: rows; None takes all there are, at most 1000.
        seed: chooses which instances, and their order.
        split: "train" or "heldout".
        length: how many numbers.
        low: smallest number.
        high: largest number.
    """

    name = "sort_numbers"
    guess_rate = 1 / 6

    def __init__(
        self,
        *,
        size: int | None = None,
        seed: int = 0,
        split: Split = "train",
        length: int = 3,
        low: int = 1,
        high: int = 9,
    ) -> None:
        if length < 2:
            raise ConfigError(f"{self.name}: length is {length}, there is nothing to sort below 2")
        self.arity = length
        super().__init__(size=size, seed=seed, split=split, low=low, high=high)

    def instance(self, index: int) -> Instance | None:
        """The numbers, if they differ and are out of order."""
        numbers = self.numbers(index)
        is_sorted = all(a < b for a, b in itertools.pairwise(numbers))
        return {"numbers": numbers} if len(set(numbers)) == self.arity and not is_sorted else None

    def prompt(self, instance: Instance) -> str:
        """The question."""
        listed = ", ".join(map(str, instance["numbers"]))
        return f"Sort these numbers from smallest to largest: {listed}. Answer only with the sorted list."

    def reference(self, instance: Instance) -> str:
        """The sorted numbers, comma-separated."""
        return ", ".join(map(str, sorted(instance["numbers"])))


def _flat(values: Any) -> list[int]:
    return [n for value in values for n in (value if isinstance(value, list) else [value])]
