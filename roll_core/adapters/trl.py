"""A verifier as a reward function of TRL (`GRPOTrainer(reward_funcs=...)`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from roll_core.adapters.batch import BatchVerifier, text_of
from roll_core.errors import DataError, near_match
from roll_core.types import Prompt, Verdict

logger = logging.getLogger(__name__)


class TrlReward:
    """Scores completions in [0, 1]; None where the machinery failed, which TRL leaves out of the group.

    The share of completions without a score is logged through TRL as `<name>/unscored_rate`.

    Args:
        batch: the verifier, under the key "".
        reference: column of the data set that holds the reference; None for verifiers without one.
        columns: keyword arguments of the verifier's `verify`, by argument the column they come from.

    Source: https://huggingface.co/docs/trl/grpo_trainer (custom reward functions).
    """

    def __init__(self, batch: BatchVerifier, reference: str | None, columns: dict[str, str]) -> None:
        self._batch = batch
        self._reference = reference
        self._columns = columns
        self.__name__ = batch.name("").rpartition("/")[2]

    def __call__(
        self,
        prompts: Sequence[Any],
        completions: Sequence[Any],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Score completions, one reward each; `columns` are those of the data set, and what TRL adds.

        Raises:
            DataError: the data set lacks a column.
        """
        references = [None] * len(prompts) if self._reference is None else _column(columns, self._reference)
        passed = {argument: _column(columns, column) for argument, column in self._columns.items()}
        verdicts = self._batch.verdicts(
            "",
            [text_of(completion) for completion in completions],
            references,
            prompts=[_prompt(index, prompt) for index, prompt in enumerate(prompts)],
            options=[{name: values[index] for name, values in passed.items()} for index in range(len(prompts))],
        )
        unscored = [verdict for verdict in verdicts if verdict.score is None]
        if unscored:
            _warn(self.__name__, unscored, len(verdicts))
        if log_metric is not None and verdicts:
            log_metric(f"{self.__name__}/unscored_rate", len(unscored) / len(verdicts))
        return [verdict.score for verdict in verdicts]

    def close(self) -> None:
        """End the verifier processes."""
        self._batch.close()


def trl_reward(
    verifier: Any,
    /,
    *,
    reference: str | None = "reference",
    columns: dict[str, str] | None = None,
    workers: int = 2,
    timeout_s: float = 30.0,
    **options: Any,
) -> TrlReward:
    """A verifier as a TRL reward function.

        GRPOTrainer(model, reward_funcs=[trl_reward("math", reference="answer")], ...)

    Args:
        verifier: its name; or an object, class or function.
        reference: column of the data set with the reference; None for verifiers without one.
        columns: further keyword arguments of the verifier's `verify`, by argument the column they come from.
        workers: verifier processes; 0 judges in this process.
        timeout_s: seconds one verdict may take.
        options: the verifier's own options.

    Raises:
        ConfigError: there is no such verifier, or its options do not fit.
    """
    batch = BatchVerifier({"": {"use": verifier, **options}}, workers=workers, timeout_s=timeout_s, retries=1)
    return TrlReward(batch, reference, dict(columns or {}))


def _column(columns: dict[str, Any], name: str) -> Sequence[Any]:
    if name not in columns:
        known = ", ".join(columns) or "none"
        raise DataError(f"the data set has no column '{name}'{near_match(name, columns) or ';'} columns: {known}")
    values: Sequence[Any] = columns[name]
    return values


def _prompt(index: int, prompt: Any) -> Prompt:
    if isinstance(prompt, str):
        return Prompt(id=str(index), domain="trl", text=prompt)
    return Prompt(id=str(index), domain="trl", messages=tuple(dict(message) for message in prompt))


def _warn(name: str, unscored: Sequence[Verdict], total: int) -> None:
    first = unscored[0]
    text = "verifier '%s' gave no score for %d of %d completions (%s: %s); they leave their groups"
    logger.warning(text, name, len(unscored), total, first.status, first.reason or first.detail)
