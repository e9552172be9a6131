"""`SmallTask`: what all tasks of this package share.

A task is a numbered space of instances. Which split an instance belongs to is a property of the instance alone (a
hash), never of seed, size or range, so training and held-out sets are disjoint whatever options each was built with.
Seed and size only choose among the instances of a split.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from roll_core.errors import ConfigError

Split = Literal["train", "heldout"]
Instance = Mapping[str, Any]
"""The values that make up one instance; they become columns of its row."""

DEFAULT_SIZE = 1000
"""Most rows a set has when no size is given."""
HELD_OUT_SHARE = 0.25
"""Share of the instances that is held out."""
_ENUMERATED = 50_000
"""Spaces up to this size are shuffled whole, larger ones sampled without replacement."""
_PATIENCE = 200
"""Draws per wanted row in a sampled space, before its split counts as used up."""


class SmallTask(ABC):
    """A source of distinct instances of one task, the same for the same options everywhere.

    Rows hold `prompt`, `reference`, `id`, `task`, and the instance's own values. A subclass says how many instances
    there are (`count`), what they are (`instance`), what keeps two of them apart as far as learning goes (`key`), and
    how they read (`prompt`, `reference`).

    Args:
        size: rows; None takes all there are, at most 1000.
        seed: chooses which instances, and their order.
        split: "train" or "heldout".

    Raises:
        ConfigError: the split holds fewer instances than `size`, or none.
    """

    name: ClassVar[str]
    """Name of the component."""
    guess_rate: ClassVar[float]
    """Pass rate, with default options, of an answer that has the right form and is otherwise a guess; each task says
    which guess."""

    def __init__(self, *, size: int | None, seed: int, split: Split) -> None:
        if split not in get_args(Split):
            raise ConfigError(f"{self.name}: split '{split}' does not exist; it is one of {', '.join(get_args(Split))}")
        if size is not None and size < 1:
            raise ConfigError(f"{self.name}: size is {size}, it must be at least 1")
        self.split = split
        self._rows = [self._row(index, instance) for index, instance in self._choose(size, seed)]
        wanted = 1 if size is None else size
        if len(self._rows) < wanted:
            raise ConfigError(
                f"{self.name}: split '{split}' holds {len(self._rows)} distinct instances in this range, {wanted} are "
                "needed; ask for fewer rows or widen the range"
            )

    def __len__(self) -> int:
        """Number of rows."""
        return len(self._rows)

    def __getitem__(self, index: int) -> Mapping[str, Any]:
        """Row `index`, from 0."""
        if not 0 <= index < len(self._rows):
            raise IndexError(f"row {index} of {len(self._rows)} of {self.name}")
        return self._rows[index]

    @abstractmethod
    def count(self) -> int:
        """Number of instances in the space, both splits together."""

    @abstractmethod
    def instance(self, index: int) -> Instance | None:
        """Instance `index` of the space; None for a number that stands for no valid one."""

    @abstractmethod
    def key(self, instance: Instance) -> str:
        """What decides the split: instances with the same key are never in different ones."""

    @abstractmethod
    def prompt(self, instance: Instance) -> str:
        """The question."""

    @abstractmethod
    def reference(self, instance: Instance) -> Any:
        """What the verifier compares with."""

    def _row(self, index: int, instance: Instance) -> dict[str, Any]:
        return {
            "prompt": self.prompt(instance),
            "reference": self.reference(instance),
            "id": f"{self.name}/{self.split}/{index}",
            "task": self.name,
            **instance,
        }

    def _choose(self, size: int | None, seed: int) -> Iterator[tuple[int, Instance]]:
        left = DEFAULT_SIZE if size is None else size
        for index in self._candidates(left, seed):
            instance = self.instance(index)
            if instance is None or _split_of(f"{self.name}:{self.key(instance)}") != self.split:
                continue
            yield index, instance
            left -= 1
            if left == 0:
                return

    def _candidates(self, wanted: int, seed: int) -> Iterator[int]:
        """Distinct instance numbers in an order that depends on task, split and seed alone."""
        count = self.count()
        key = hashlib.blake2b(f"{self.name}/{self.split}/{seed}".encode(), digest_size=16).digest()
        generator = np.random.Philox(key=int.from_bytes(key, "little"))
        if count <= _ENUMERATED:
            yield from np.argsort(generator.random_raw(count), kind="stable").tolist()
            return
        seen: set[int] = set()
        for raw in generator.random_raw(_PATIENCE * wanted).tolist():
            index = raw % count
            if index not in seen:
                seen.add(index)
                yield index


def _split_of(key: str) -> Split:
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "little") < HELD_OUT_SHARE * 2**64 else "train"
