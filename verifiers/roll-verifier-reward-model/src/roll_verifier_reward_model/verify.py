"""`RewardModelVerifier`: the component."""

from __future__ import annotations

import asyncio
import json
import threading
import weakref
from pathlib import Path
from typing import Any, Self

from roll_core.errors import ConfigError
from roll_core.models import resolve_model
from roll_core.types import Prompt, Rollout, Verdict
from roll_verifier_reward_model.inputs import PromptError, messages_of
from roll_verifier_reward_model.judge import BatchJudge
from roll_verifier_reward_model.settings import Dtype, Overflow, Settings, Transform
from roll_verifier_reward_model.worker import Request, Worker, closed


class RewardModelVerifier:
    """Scores a response by a reward model: a Hugging Face sequence-classification checkpoint.

    Concurrent calls, of one event loop or several, are gathered into batches and run in one thread, where the model is
    loaded on first use. Prompt and response are shown in the tokenizer's chat template, where it has one, else as two
    texts.

    * `CORRECT`: the score is at least `threshold`; `INCORRECT`: below. Both carry the score; `detail` is "logit" (under
      softmax "probability") and the raw value, behind "truncated" when the response was cut.
    * `INVALID`: the response is empty ("no_answer") or does not fit ("too_long").
    * `UNDECIDED`: the prompt is missing ("no_prompt"), has media ("media"), is refused by the template ("bad_prompt"),
      or leaves no room ("prompt_too_long").
    * `ERROR`: the model cannot be loaded ("load_failed"), fails ("forward_failed"), gives NaN or infinity
      ("non_finite") or under identity something outside [0, 1] ("out_of_range"); the verifier was closed ("closed").

    Args:
        model: a folder in Hugging Face format, or the name of a `models` component.
        label: which label is the score, by name or index; a model with one logit needs none.
        transform: "sigmoid" of scale * logit + offset; "softmax": the label's probability; "linear": scale * logit +
            offset, cut to [0, 1]; "identity": the logit itself, for models whose outputs lie in [0, 1].
        scale: see transform.
        offset: see transform.
        threshold: least score of a correct response, in (0, 1].
        overflow: a response that does not fit is refused ("refuse": INVALID) or cut at its end ("truncate").
        max_tokens: most tokens of prompt and response; None takes what model and tokenizer say.
        max_chars: longest response in characters, looked at before it is tokenized.
        strip_thinking: leave out `<think>…</think>`; thinking that is not closed leaves nothing.
        device: "auto" (a GPU where there is one), "cpu", "cuda", "cuda:1" and so on.
        dtype: "auto" is bfloat16 on a GPU and float32 elsewhere.
        max_batch: most responses of one batch.
        max_batch_tokens: most tokens of one forward pass, padding included.
        max_wait_ms: how long the first response of a batch waits for others, in milliseconds.

    Raises:
        ConfigError: there is no such model, or its config is not one of a sequence classifier.
        ValueError: an option is out of its range.
    """

    def __init__(
        self,
        model: str,
        *,
        label: str | int | None = None,
        transform: Transform = "sigmoid",
        scale: float = 1.0,
        offset: float = 0.0,
        threshold: float = 0.5,
        overflow: Overflow = "refuse",
        max_tokens: int | None = None,
        max_chars: int = 200_000,
        strip_thinking: bool = True,
        device: str = "auto",
        dtype: Dtype = "auto",
        max_batch: int = 32,
        max_batch_tokens: int = 65_536,
        max_wait_ms: float = 5.0,
    ) -> None:
        folder = resolve_model(model, place="verifier.model")
        _check_architecture(folder)
        self._settings = Settings(
            folder=folder,
            label=label,
            transform=transform,
            scale=scale,
            offset=offset,
            threshold=threshold,
            overflow=overflow,
            max_tokens=max_tokens,
            max_chars=max_chars,
            strip_thinking=strip_thinking,
            device=device,
            dtype=dtype,
            max_batch=max_batch,
            max_batch_tokens=max_batch_tokens,
            max_wait_ms=max_wait_ms,
        )
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._judge = BatchJudge(self._settings)
        self._worker: Worker | None = None
        self._is_closed = False

    @property
    def forwards(self) -> int:
        """Forward passes so far."""
        return self._judge.forwards

    async def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
    ) -> Verdict:
        """Judge one response.

        Args:
            response: what the policy wrote.
            reference: not compared with; `{"prompt": ...}` (text or messages) stands in where there is no prompt.
            prompt: what was asked.
            rollout: not looked at.
        """
        try:
            messages = messages_of(prompt, reference)
        except PromptError as error:
            return Verdict.undecided(str(error), detail=error.detail)
        request = Request(messages, response)
        worker = self._running()
        if worker is None:
            return closed()
        worker.submit(request)
        return await asyncio.wrap_future(request.future)

    async def prepare(self) -> None:
        """Load the model now, so that no verdict waits for it.

        Raises:
            BackendError: it cannot be loaded.
        """
        await asyncio.to_thread(self._judge.load)

    def close(self) -> None:
        """End the thread and let go of the model; what still waits gets an error verdict. May be called again."""
        with self._lock:
            self._is_closed = True
            worker, self._worker = self._worker, None
        if worker is not None:
            worker.close()
        self._judge = BatchJudge(self._settings)

    def _running(self) -> Worker | None:
        """The worker, started on first use; None after `close`."""
        with self._lock:
            if self._worker is None and not self._is_closed:
                settings = self._settings
                self._worker = Worker(self._judge, settings.max_batch, settings.max_wait_ms / 1000)
                weakref.finalize(self, self._worker.close, 1.0)
            return self._worker

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getstate__(self) -> Settings:
        return self._settings

    def __setstate__(self, state: Settings) -> None:
        self._settings = state
        self._start()


def _check_architecture(folder: Path) -> None:
    """Refuse a folder whose config names other heads: transformers would give it a random one.

    Raises:
        ConfigError: it does, or cannot be read.
    """
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        names = config.get("architectures") or []
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{folder / 'config.json'} (verifier.model) cannot be read: {error}") from error
    if names and not any("SequenceClassification" in str(name) or "Reward" in str(name) for name in names):
        raise ConfigError(
            f"the model in {folder} (verifier.model) is a {', '.join(map(str, names))}: a reward model is a checkpoint "
            "for sequence classification"
        )
