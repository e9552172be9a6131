"""What an answer that ignores the question is worth."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NamedTuple

from roll_core.contracts import Source
from roll_core.errors import DataError


class ConstantAnswer(NamedTuple):
    """The answer that is right most often when it is always given, and how often (0 to 1)."""

    answer: Any
    rate: float


def best_constant_answer(source: Source, *, reference: str = "reference") -> ConstantAnswer:
    """The best constant answer on a set: its most frequent reference (the first one, among equals).

    A pass rate that does not exceed this rate shows nothing but a collapse to one answer.

    Args:
        source: rows with a reference each; references that are equal as JSON count as the same answer.
        reference: name of the column.

    Raises:
        DataError: the set is empty, or a row lacks the column.
    """
    if len(source) == 0:
        raise DataError("there is no best constant answer for a set without rows")
    counts: Counter[str] = Counter()
    answers: dict[str, Any] = {}
    for index in range(len(source)):
        row = source[index]
        if reference not in row:
            raise DataError(f"row {index} has no column '{reference}'; columns: {', '.join(row)}")
        key = json.dumps(row[reference], sort_keys=True, default=str)
        counts[key] += 1
        answers.setdefault(key, row[reference])
    key, count = counts.most_common(1)[0]
    return ConstantAnswer(answers[key], count / len(source))


def constant_answer_rate(source: Source, *, reference: str = "reference") -> float:
    """How often the best constant answer is right on a set, from 0 to 1 (see `best_constant_answer`)."""
    return best_constant_answer(source, reference=reference).rate
