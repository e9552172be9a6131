"""A verifier as a reward function of a `Rubric` of PrimeIntellect verifiers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping, Sequence
from typing import Any

from roll_core.adapters.batch import BatchVerifier, text_of
from roll_core.types import Verdict

logger = logging.getLogger(__name__)


class RubricReward:
    """Scores all completions of a group.

    A rubric turns an exception of a reward function into reward 0, and has no missing value. Where the machinery
    failed, the completion gets the mean of its group instead, so that its advantage is 0 and the others' stay what they
    are; `state["unscored"]` says why. In a group without any score all get 0, hence no advantage either.

    Args:
        batch: the verifier, under the key "".

    Source: https://docs.primeintellect.ai/verifiers (rubrics, group reward functions).
    """

    def __init__(self, batch: BatchVerifier) -> None:
        self._batch = batch
        self.__name__ = batch.name("").rpartition("/")[2]

    async def __call__(self, completions: list[Any], answers: list[Any], states: list[Any]) -> list[float]:
        """Score the completions of a group, given their answers and states."""
        responses = [text_of(completion) for completion in completions]
        verdicts = await asyncio.to_thread(self._batch.verdicts, "", responses, answers)
        return self._rewards(verdicts, states)

    def close(self) -> None:
        """End the verifier processes."""
        self._batch.close()

    def _rewards(self, verdicts: Sequence[Verdict], states: Sequence[MutableMapping[str, Any]]) -> list[float]:
        scores = [verdict.score for verdict in verdicts if verdict.score is not None]
        middle = sum(scores) / len(scores) if scores else 0.0
        for verdict, state in zip(verdicts, states, strict=True):
            if verdict.score is None:
                state["unscored"] = f"{verdict.status}: {verdict.reason or verdict.detail}"
                logger.warning("verifier '%s' gave no score (%s)", self.__name__, state["unscored"])
        return [middle if verdict.score is None else verdict.score for verdict in verdicts]


def rubric_reward(verifier: Any, /, *, workers: int = 2, timeout_s: float = 30.0, **options: Any) -> RubricReward:
    """A verifier as a group reward function of a rubric.

        vf.Rubric(funcs=[rubric_reward("math")], weights=[1.0])

    Args:
        verifier: its name; or an object, class or function.
        workers: verifier processes; 0 judges in this process.
        timeout_s: seconds one verdict may take.
        options: the verifier's own options.

    Raises:
        ConfigError: there is no such verifier, or its options do not fit.
    """
    return RubricReward(
        BatchVerifier({"": {"use": verifier, **options}}, workers=workers, timeout_s=timeout_s, retries=2)
    )
