"""From a batch of requests to verdicts. Runs in the worker's thread, where the model is loaded on first use."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from roll_core.errors import BackendError
from roll_core.types import Verdict, without_thinking
from roll_verifier_reward_model.inputs import Encoded, Encoder, PromptError, ResponseTooLongError
from roll_verifier_reward_model.model import RewardModel
from roll_verifier_reward_model.settings import Settings, to_score
from roll_verifier_reward_model.worker import Request


class BatchJudge:
    """Judges batches with one model.

    Args:
        settings: the verifier's options.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._model: RewardModel | None = None
        self._encoder: Encoder | None = None
        self._failure: BackendError | None = None

    @property
    def forwards(self) -> int:
        """Forward passes so far."""
        return 0 if self._model is None else self._model.forwards

    def __call__(self, requests: Sequence[Request]) -> list[Verdict]:
        """One verdict for each request, in their order."""
        try:
            model, encoder = self.load()
        except BackendError as error:
            return [Verdict.error(str(error), detail="load_failed")] * len(requests)
        read = [self._read(encoder, request) for request in requests]
        inputs = [one for one in read if isinstance(one, Encoded)]
        outputs = iter(model.outputs(inputs))
        return [one if isinstance(one, Verdict) else self._verdict(one, next(outputs)) for one in read]

    def load(self) -> tuple[RewardModel, Encoder]:
        """The model and its encoder, loaded on the first call.

        Raises:
            BackendError: the model cannot be loaded, now or on the first call.
        """
        with self._lock:
            if self._failure is not None:
                raise self._failure
            if self._model is None or self._encoder is None:
                try:
                    self._model = RewardModel(self._settings)
                except BackendError as error:
                    self._failure = error
                    raise
                self._encoder = Encoder(self._model.tokenizer, self._model.max_tokens, self._settings.overflow)
            return self._model, self._encoder

    def _read(self, encoder: Encoder, request: Request) -> Encoded | Verdict:
        settings = self._settings
        text = without_thinking(request.response) if settings.strip_thinking else request.response
        if not text.strip():
            return Verdict.invalid("the response is empty", detail="no_answer")
        if len(text) > settings.max_chars and settings.overflow == "refuse":
            return Verdict.invalid(f"{len(text)} characters, at most {settings.max_chars}", detail="too_long")
        try:
            return encoder.encode(request.messages, text[: settings.max_chars])
        except PromptError as error:
            return Verdict.undecided(str(error), detail=error.detail)
        except ResponseTooLongError as error:
            return Verdict.invalid(str(error), detail="too_long")

    def _verdict(self, encoded: Encoded, raw: float) -> Verdict:
        settings = self._settings
        if not math.isfinite(raw):
            return Verdict.error(f"the reward model gave {raw}", detail="non_finite")
        score = to_score(raw, settings)
        if score is None:
            reason = f"transform '{settings.transform}' needs outputs in [0, 1], the model gave {raw:.6g}"
            return Verdict.error(reason, detail="out_of_range")
        what = "probability" if settings.transform == "softmax" else "logit"
        detail = f"{'truncated ' if encoded.is_truncated else ''}{what} {raw:.6g}"
        if score >= settings.threshold:
            return Verdict.correct(score=score, detail=detail)
        return Verdict.incorrect(score=score, detail=detail)
