"""A language model as this strategy uses it: lay segments out, run the layers, score tokens."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from roll_core.builtin.local_train.attention import PLAN_KEY
from roll_core.builtin.local_train.kernels import embedding
from roll_core.builtin.local_train.layout import Layout, packed_layout, padded_layout
from roll_core.builtin.local_train.loading import backbone_of, head_of, supports_packing
from roll_core.builtin.local_train.logprob import TokenScores, Workspace, token_logprobs
from roll_core.builtin.local_train.masters import MasterWeights
from roll_core.builtin.local_train.packing import plan_packed, plan_padded
from roll_core.builtin.local_train.targets import targets_of
from roll_core.errors import BackendError
from roll_core.types import Batch, FloatArray, IndexArray

LayoutKind = Literal["auto", "shared_prompt", "padded"]

_log = logging.getLogger(__name__)


class Backbone:
    """The layers of a causal language model below its output layer.

    Args:
        model: the model, as `loading.load_causal_lm` returns it.
        source: where it came from, for messages.
        layout: "auto" shares prompts where the model allows it.
        masters: who collects the gradients; None leaves them to autograd, or for a frozen model.
        device: where it computes, if its weights are elsewhere between forward passes.
        dtype: what it computes in, if its weights are kept in another format.

    Raises:
        BackendError: `layout` is "shared_prompt" and the model's attention cannot be replaced.
    """

    def __init__(
        self,
        model: Any,
        source: Path,
        layout: LayoutKind,
        masters: MasterWeights | None = None,
        *,
        device: torch.device | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.model = model
        self.device: torch.device = device or model.device
        self._dtype: torch.dtype = dtype or model.dtype
        self._layers = backbone_of(model)
        self._source = source
        self._packed = layout != "padded"
        if self._packed and (reason := supports_packing(model)) is not None:
            if layout == "shared_prompt":
                raise BackendError(f"layout 'shared_prompt' cannot be used with '{source}': {reason}; use 'auto'")
            _log.info("prompts are not shared for '%s': %s", source, reason)
            self._packed = False
        self._embedding = _collected_embedding(model, masters) if masters is not None else None

    def plan(self, batch: Batch, segments: IndexArray, micro_tokens: int) -> list[IndexArray]:
        """Split `segments` into micro-batches of at most about `micro_tokens` computed rows."""
        self._check(batch, segments)
        return (plan_packed if self._packed else plan_padded)(batch, segments, micro_tokens)

    def layout(self, batch: Batch, segments: IndexArray) -> Layout:
        """Lay a micro-batch out for this model."""
        if self._packed:
            return packed_layout(batch, segments, self.device, self._dtype)
        return padded_layout(batch, segments, self.device)

    def hidden(self, layout: Layout) -> Tensor:
        """Hidden states [m, H] that predict the scored tokens of a micro-batch."""
        options: dict[str, Any] = {"use_cache": False}
        if layout.position_ids is not None:
            options["position_ids"] = layout.position_ids
        if layout.plan is not None:
            options[PLAN_KEY] = layout.plan
        if torch.is_grad_enabled() and self._embedding is not None:
            weight, gradient = self._embedding
            options["inputs_embeds"] = embedding(weight, layout.input_ids, gradient)
        else:
            options["input_ids"] = layout.input_ids
        states: Tensor = self._layers(**options).last_hidden_state
        return states.flatten(0, 1).index_select(0, layout.predictors)

    def _check(self, batch: Batch, segments: IndexArray) -> None:
        """Refuse segments that this model cannot read."""
        if len(segments) == 0:
            raise BackendError("a mini-batch without segments cannot be trained on")
        config = self.model.config.get_text_config()
        limit = getattr(config, "max_position_embeddings", None)
        lengths = batch.lengths[segments]
        if limit is not None and lengths.max() > limit:
            raise BackendError(
                f"segment {int(segments[lengths.argmax()])} has {int(lengths.max())} tokens, more than the {limit} "
                f"that '{self._source}' can read; lower batch.max_prompt_tokens or sampling.max_new_tokens"
            )
        vocabulary = int(config.vocab_size)
        if len(batch.token_ids) and int(batch.token_ids.max()) >= vocabulary:
            raise BackendError(
                f"token {int(batch.token_ids.max())} is outside the vocabulary of '{self._source}' ({vocabulary}); "
                "policy, reference and teachers must share one tokenizer"
            )


class ScoringModel(Backbone):
    """A causal language model that scores tokens: policy, reference or teacher."""

    def __init__(
        self, model: Any, source: Path, layout: LayoutKind, workspace: Workspace, masters: MasterWeights | None = None
    ) -> None:
        gradient = masters.gradient_of(model.get_output_embeddings().weight) if masters else None
        self._head = head_of(model, gradient)
        self._workspace = workspace
        super().__init__(model, source, layout, masters)

    def scores(self, batch: Batch, layout: Layout, *, entropy: bool = False, sampled: bool = True) -> TokenScores:
        """Scores [m] of the scored tokens of a micro-batch; without `sampled`, of the full distribution only."""
        targets = targets_of(batch, layout, self.device, sampled=sampled)
        return token_logprobs(self.hidden(layout), self._head, targets, self._workspace, entropy=entropy)


def _collected_embedding(model: Any, masters: MasterWeights) -> tuple[Tensor, Callable[[], Tensor]] | None:
    """The input embedding and where its gradient is summed, if it is a plain table that is trained."""
    table = model.get_input_embeddings()
    if type(table) is not nn.Embedding or table.max_norm is not None:
        return None
    gradient = masters.gradient_of(table.weight)
    return None if gradient is None else (table.weight, gradient)


def spread(batch: Batch, layout: Layout, values: Tensor, out: FloatArray) -> None:
    """Write values [m] of a micro-batch's scored tokens to their places in a column [N]."""
    out[layout.source[layout.scored]] = values.detach().float().cpu().numpy()


def empty_column(batch: Batch) -> FloatArray:
    """A token column [N] of zeros."""
    return np.zeros(batch.n_tokens, dtype=np.float32)
