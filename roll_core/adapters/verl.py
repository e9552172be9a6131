"""Verifiers as verl's `compute_score` (`reward.custom_reward_function`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from roll_core.adapters.batch import BatchVerifier
from roll_core.errors import RollError, unknown_name
from roll_core.types import Prompt, Status, Verdict

Unscored = Literal["raise"] | float


class UnscoredError(RollError, RuntimeError):
    """The machinery failed to judge a response, and the caller did not say what that is worth."""


class VerlScore:
    """Scores one response by the verifier of its data source.

    Args:
        batch: the verifiers, by data source.
        options: keyword arguments of `verify` that are taken out of `extra_info`.
        unscored: what a response is worth that the machinery could not judge; "raise" refuses to say.

    Source: https://verl.readthedocs.io/en/latest/preparation/reward_function.html
    """

    def __init__(self, batch: BatchVerifier, options: tuple[str, ...], unscored: Unscored) -> None:
        self._batch = batch
        self._options = options
        self._unscored = unscored

    def __call__(
        self,
        data_source: str,
        solution_str: str,
        ground_truth: Any,
        extra_info: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> dict[str, float | str]:
        """Score one response.

        Args:
            data_source: the row's data source, one of the configured ones.
            solution_str: the response.
            ground_truth: the reference.
            extra_info: the row's further information.

        Returns:
            `score` in [0, 1], `acc` (1 when correct), `pred` (the extracted answer), `unscored` (1 when the machinery
            failed), `status` and `detail`.

        Raises:
            UnknownNameError: no verifier is configured for the data source.
            UnscoredError: the machinery failed and `unscored` is "raise".
        """
        key = data_source if data_source in self._batch.keys else "*"
        if key not in self._batch.keys:
            raise unknown_name("data source", data_source, self._batch.keys)
        extra = extra_info or {}
        options = {name: extra[name] for name in self._options if name in extra}
        prompt = Prompt(id=str(extra.get("index", "")), domain=data_source, reference=ground_truth, info=extra)
        (verdict,) = self._batch.verdicts(key, [solution_str], [ground_truth], prompts=[prompt], options=[options])
        return {
            "score": self._score(verdict),
            "acc": float(verdict.status is Status.CORRECT),
            "pred": verdict.answer or "",
            "unscored": float(verdict.score is None),
            "status": verdict.status.value,
            "detail": verdict.detail,
        }

    def close(self) -> None:
        """End the verifier processes."""
        self._batch.close()

    def _score(self, verdict: Verdict) -> float:
        if verdict.score is not None:
            return verdict.score
        if self._unscored == "raise":
            raise UnscoredError(
                f"verifier '{verdict.verifier}' gave no score ({verdict.status}: {verdict.reason or verdict.detail}); "
                "verl cannot leave a response out of its group: repair the verifier, or set unscored=<reward>"
            )
        return float(self._unscored)


def verl_score(
    verifiers: Mapping[str, Any],
    *,
    options: tuple[str, ...] = (),
    unscored: Unscored = "raise",
    workers: int = 2,
    timeout_s: float = 30.0,
    retries: int = 2,
) -> VerlScore:
    """Verifiers as verl's `compute_score`, in a file that `custom_reward_function.path` names.

        compute_score = verl_score({"openai/gsm8k": "math", "codeforces": {"use": "code", "partial": True}})

    Args:
        verifiers: by data source; "*" is for all others.
        options: names in `extra_info` that are handed to the verifier as keyword arguments.
        unscored: reward of a response that the machinery could not judge after `retries`; verl has no way to leave
            one out, so that "raise" (the default) stops the run rather than train towards a wrong reward.
        workers: verifier processes.
        timeout_s: seconds one verdict may take.
        retries: how often a failure of the machinery is tried again.

    Raises:
        ConfigError: there is no such verifier, or its options do not fit.
    """
    return VerlScore(BatchVerifier(verifiers, workers=workers, timeout_s=timeout_s, retries=retries), options, unscored)
