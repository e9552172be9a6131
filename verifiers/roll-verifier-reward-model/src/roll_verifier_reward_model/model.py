"""The checkpoint, and the forward pass over a batch. Everything here runs in the worker's thread."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Sequence
from typing import Any

from roll_core.errors import BackendError
from roll_verifier_reward_model.inputs import Encoded
from roll_verifier_reward_model.settings import Settings

_log = logging.getLogger(__name__)
_UNKNOWN_LENGTH = 10**9
"""Tokenizers without a known limit say something larger."""


class RewardModel:
    """A loaded sequence-classification checkpoint.

    Args:
        settings: folder, device, dtype, label and batch sizes.

    Raises:
        BackendError: the folder cannot be loaded, its head is not in the checkpoint, the label is not the model's, or
            the longest input is unknown.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.tokenizer, self._model = _load(settings)
        config = self._model.config
        self._text_config = config.get_text_config()
        self._column = _column(settings, int(config.num_labels), dict(config.id2label or {}))
        self.max_tokens = settings.max_tokens or _longest(self.tokenizer, self._text_config, settings)
        self._takes_types = "token_type_ids" in inspect.signature(self._model.forward).parameters
        self._pad_id: int | None = self._text_config.pad_token_id
        self.forwards = 0
        """Forward passes so far."""
        _log.info("reward model %s: %s on %s", settings.folder, self._model.dtype, self._model.device)

    def outputs(self, inputs: Sequence[Encoded]) -> list[float]:
        """The chosen logit of each input ("softmax": its probability), in their order; it may be NaN or infinite."""
        order = sorted(range(len(inputs)), key=lambda i: len(inputs[i].ids))
        results = [math.nan] * len(inputs)
        start = 0
        while start < len(order):
            end = start + 1
            while (
                end < len(order) and (end + 1 - start) * len(inputs[order[end]].ids) <= self._settings.max_batch_tokens
            ):
                end += 1
            chosen = order[start:end]
            for i, value in zip(chosen, self._halving([inputs[i] for i in chosen]), strict=True):
                results[i] = value
            start = end
        return results

    def _halving(self, inputs: list[Encoded]) -> list[float]:
        """One forward pass; two of half the size when the device's memory is too small for it."""
        import torch

        try:
            return self._forward(inputs)
        except torch.OutOfMemoryError:
            if len(inputs) == 1:
                raise
        torch.cuda.empty_cache()
        middle = len(inputs) // 2
        return [*self._halving(inputs[:middle]), *self._halving(inputs[middle:])]

    def _forward(self, inputs: list[Encoded]) -> list[float]:
        import torch

        width = max(len(one.ids) for one in inputs)
        pad = self._padding(inputs)
        rows = [[*one.ids, *[pad] * (width - len(one.ids))] for one in inputs]
        mask = [[1] * len(one.ids) + [0] * (width - len(one.ids)) for one in inputs]
        device = self._model.device
        arguments = {
            "input_ids": torch.tensor(rows, dtype=torch.long, device=device),
            "attention_mask": torch.tensor(mask, dtype=torch.long, device=device),
        }
        if self._takes_types and all(one.token_types for one in inputs):
            types = [[*one.token_types, *[0] * (width - len(one.ids))] for one in inputs]
            arguments["token_type_ids"] = torch.tensor(types, dtype=torch.long, device=device)
        self.forwards += 1
        with torch.inference_mode():
            logits = self._model(**arguments).logits.float()
            if self._settings.transform == "softmax":
                logits = logits.softmax(dim=-1)
            return [float(value) for value in logits[:, self._column].tolist()]

    def _padding(self, inputs: Sequence[Encoded]) -> int:
        """The id to pad with on the right.

        A model that names its own pools the last token that differs from it. One that names none pools the last token
        whatever it is, and takes no batches; it gets, for this pass, an id that no input holds, which means the same.
        """
        if self._pad_id is not None:
            return self._pad_id
        used = {token for one in inputs for token in one.ids}
        free = next(token for token in range(len(used) + 1) if token not in used)
        self._text_config.pad_token_id = free
        return free


def _load(settings: Settings) -> tuple[Any, Any]:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging as bars

    device, dtype = _place(settings)
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        tokenizer = AutoTokenizer.from_pretrained(settings.folder, local_files_only=True)
        model, info = AutoModelForSequenceClassification.from_pretrained(
            settings.folder, dtype=dtype, local_files_only=True, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        raise BackendError(f"cannot load the reward model in {settings.folder}: {error}") from error
    finally:
        if shown:
            bars.enable_progress_bar()
    missing = sorted(info["missing_keys"]) + sorted(str(key) for key in info["mismatched_keys"])
    if missing:
        raise BackendError(
            f"the checkpoint in {settings.folder} lacks {', '.join(missing[:5])}: the score would be random; use one "
            "that was trained for sequence classification"
        )
    return tokenizer, model.to(device).eval().requires_grad_(False)


def _place(settings: Settings) -> tuple[Any, Any]:
    """Device and floating-point format."""
    import torch

    name = settings.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BackendError(f"device '{settings.device}' cannot be used here: {error}") from error
    if settings.dtype == "auto":
        return device, torch.bfloat16 if device.type == "cuda" else torch.float32
    return device, getattr(torch, settings.dtype)


def _column(settings: Settings, count: int, names: dict[int, str]) -> int:
    """Which logit is the score."""
    known = [names.get(i, str(i)) for i in range(count)]
    label = settings.label
    if count == 1:
        if settings.transform == "softmax":
            raise BackendError(f"{settings.folder} has one logit: transform must be sigmoid, linear or identity")
        if label in (None, 0, known[0]):
            return 0
    if label is None:
        raise BackendError(f"{settings.folder} has {count} labels; option label must name one of: {', '.join(known)}")
    position = known.index(label) if label in known else label
    if not isinstance(position, int) or isinstance(position, bool) or not 0 <= position < count:
        raise BackendError(f"label {label!r} is none of {settings.folder}: {', '.join(known)}")
    return position


def _longest(tokenizer: Any, text_config: Any, settings: Settings) -> int:
    limits = (getattr(text_config, "max_position_embeddings", None), tokenizer.model_max_length)
    known = [int(limit) for limit in limits if limit is not None and 0 < limit < _UNKNOWN_LENGTH]
    if not known:
        raise BackendError(f"neither model nor tokenizer in {settings.folder} say the longest input; set max_tokens")
    return min(known)
