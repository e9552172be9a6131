"""What the tests have read of the candidate's objects, so that an object cannot show each reader something else.

A check such as `sorted(r) == sorted(xs) and all(r[i] <= r[i + 1] ...)` reads one object in several ways, and a rigged
one answers each with what suits it. So what was read stays, until the tests do something that may change an object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

READS = frozenset(
    [
        "len",
        "item",
        "iter",
        "next",
        "str",
        "repr",
        "int",
        "float",
        "index",
        "round",
        "isinstance",
        "issubclass",
        "plain",
        "operate",
        "copy",
        "deepcopy",
    ]
)
"""Requests that change nothing, where the candidate is honest."""


class Seen:
    """What was read of one object: contents, length, parts in order, items by index."""

    def __init__(self) -> None:
        self.plain: Any = None
        self.length: int | None = None
        self.parts: list[Any] = []
        self.items: dict[int, Any] = {}

    def agree(self, index: int) -> bool:
        """Whether the item and the part at this index, as far as both were read, are alike."""
        return index >= len(self.parts) or index not in self.items or alike(self.items[index], self.parts[index])


class Reads:
    """What was read of each object, by its number."""

    def __init__(self) -> None:
        self._seen: dict[int, Seen] = {}
        self._numbers: dict[int, dict[tuple[Any, ...], Any]] = {}
        self.walked: set[int] = set()
        """Iterators that walk an object for a `for`: advancing them changes nothing."""
        self.exhausted: set[int] = set()
        """Iterators that ended."""
        self.derived: set[int] = set()
        """Results of operators."""

    def of(self, number: int) -> Seen:
        """What was read of the object of that number."""
        return self._seen.setdefault(number, Seen())

    def before(self, operation: str, number: int, concerned: list[int]) -> None:
        """A request is about to be made, on one object and with others as arguments."""
        if operation in READS and (operation != "next" or number in self.walked):
            return
        self._seen.clear()
        for changed in (number, *concerned):
            self._numbers.pop(changed, None)

    def once(self, number: int, key: tuple[Any, ...], ask: Callable[[], Any]) -> Any:
        """The answer to a conversion to a number: asked once, and the same until the object is used otherwise.

        Else an object whose `__float__` gives a new value each time satisfies any equation that reads it twice.
        """
        answers = self._numbers.get(number, {})
        if key not in answers:
            answers = {**answers, key: ask()}
            self._numbers[number] = answers
        return answers[key]


def alike(first: Any, second: Any) -> bool:
    """Whether two values that were read are the same, where that can be told; objects of the candidate's cannot."""
    if first is second or _has_object(first) or _has_object(second):
        return True
    if first != first and second != second:  # noqa: PLR0124  NaN is what differs from itself
        return True
    return bool(first == second)


def _has_object(value: Any) -> bool:
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_object, value))
    if type(value) is dict:
        return any(_has_object(part) for item in value.items() for part in item)
    return hasattr(type(value), "_roll_truth_")
