"""From a value of a scale to a score in [0, 1]."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from roll_verifier_judge.options import Criterion
from roll_verifier_judge.scales import BoolScale, NumberScale, RubricScale, Scale


def score_of(value: Any, scale: Scale, scores: Mapping[str, float], criteria: Sequence[Criterion]) -> float:
    """The score of a verdict.

    A number is put on [0, 1] by (value - min) / (max - min), a truth value is 1 or 0, a label has the score the
    configuration gives it, and a rubric the mean of its criteria's scores by their weights.

    Args:
        value: as `parse_reply` returns it.
        scale: what was asked for.
        scores: of the labels of a label scale.
        criteria: of a rubric scale.
    """
    if isinstance(scale, NumberScale):
        return (float(value) - scale.min) / (scale.max - scale.min)
    if isinstance(scale, BoolScale):
        return 1.0 if value else 0.0
    if isinstance(scale, RubricScale):
        total = math.fsum(criterion.weight for criterion in criteria)
        reached = math.fsum(criterion.weight * criterion.verdicts[value[criterion.name]] for criterion in criteria)
        return min(1.0, reached / total)
    return scores[value]
