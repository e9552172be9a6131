"""Language models as sharded modules: everything that reads their parameters happens inside a forward call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from roll_core.builtin.local_train.critic import enable_checkpointing, value_head
from roll_core.builtin.local_train.layout import Layout
from roll_core.builtin.local_train.loading import add_lora, backbone_of, head_of, load_causal_lm
from roll_core.builtin.local_train.logprob import Head, Targets, TokenScores, Workspace, token_logprobs
from roll_core.builtin.local_train.model import Backbone
from roll_core.contracts import LoraSettings
from roll_core.errors import BackendError
from roll_core.types import Batch
from roll_plugin_fsdp.options import FsdpOptions
from roll_plugin_fsdp.processes import Ranks, one_at_a_time
from roll_plugin_fsdp.sharding import shard_module, shard_wide, split_matrices

_HOST = torch.device("cpu")


class Scorer(nn.Module):
    """A causal language model that scores tokens: policy, reference or teacher.

    Args:
        model: the model, whole and on the host.
        source: where it came from, for messages.
        options: layout and chunk.
        device: where it is going to compute.
        dtype: in which format.
    """

    def __init__(
        self, model: Any, source: Path, options: FsdpOptions, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        head = head_of(model)
        self.model = model
        self.backbone = Backbone(model, source, options.layout, device=device, dtype=dtype)
        self._scale, self._softcap = head.scale, head.softcap
        self._workspace = Workspace(options.logprob_chunk)

    def forward(self, layout: Layout, targets: Targets, entropy: bool) -> tuple[Tensor, Tensor, Tensor | None]:
        """The fields of `TokenScores`, as the tuple that FSDP needs to find the tensors in."""
        layer = self.model.get_output_embeddings()
        head = Head(layer.weight, layer.bias, self._scale, self._softcap)
        found = token_logprobs(self.backbone.hidden(layout), head, targets, self._workspace, entropy=entropy)
        return found.logprobs, found.full_logprobs, found.entropy

    def scores(self, layout: Layout, targets: Targets, *, entropy: bool) -> TokenScores:
        """Scores [m] of the scored tokens of a micro-batch."""
        return TokenScores(*self(layout, targets, entropy))

    def trained(self) -> Mapping[str, nn.Parameter]:
        """What is trained, by its name in the model."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}


class Valuer(nn.Module):
    """The critic: a backbone of its own and a scalar head that starts at zero. Arguments as for `Scorer`."""

    def __init__(
        self, model: Any, source: Path, options: FsdpOptions, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.backbone = Backbone(model, source, options.layout, device=device, dtype=dtype)
        self.layers = backbone_of(model)
        self.value_head = value_head(model)

    def forward(self, layout: Layout) -> Tensor:
        """Values [m] of the scored tokens of a micro-batch, float32."""
        out: Tensor = self.value_head(self.backbone.hidden(layout).float())
        return out[:, 0]

    def trained(self) -> Mapping[str, nn.Parameter]:
        """What is trained, by name."""
        return dict(self.named_parameters())


class Builder:
    """Loads models and shards them, one rank of a machine after the other.

    Args:
        ranks: where to.
        options: layout, memory and mesh.
        dtype: what models compute in.
    """

    def __init__(self, ranks: Ranks, options: FsdpOptions, dtype: torch.dtype) -> None:
        self._ranks = ranks
        self._options = options
        self._dtype = dtype

    def policy(self, folder: Path, lora: LoraSettings | None, seed: int) -> tuple[Scorer, Any | None, frozenset[str]]:
        """The policy, the peft model around it if any, and whose gradients the tensor-parallel ranks have to sum.

        Raises:
            BackendError: it cannot be loaded or laid out as asked, or there is nothing to train in it.
        """
        if lora is not None and self._ranks.tensor_mesh is not None:
            raise BackendError("adapters (model.lora) cannot be combined with tensor_parallel; set it to 1")
        with one_at_a_time():
            model = load_causal_lm(folder, torch.float32 if lora is None else self._dtype, _HOST)
            peft = add_lora(model, lora, seed) if lora is not None else None
            scorer = Scorer(model, folder, self._options, self._ranks.device, self._dtype)
            for parameter in scorer.trained().values():
                parameter.data = parameter.data.float()
            if not scorer.trained():
                raise BackendError(f"the model in '{folder}' has nothing to train")
            summed = self._finish(scorer, model, is_trained=True)
        return scorer, peft, summed

    def frozen(self, folder: Path) -> Scorer:
        """A reference or teacher.

        Raises:
            BackendError: it cannot be loaded or laid out as asked.
        """
        with one_at_a_time():
            model = load_causal_lm(folder, self._dtype, _HOST)
            model.requires_grad_(False)
            scorer = Scorer(model, folder, self._options, self._ranks.device, self._dtype)
            self._finish(scorer, model, is_trained=False)
        return scorer

    def critic(self, folder: Path) -> tuple[Valuer, frozenset[str]]:
        """The critic, and whose gradients the tensor-parallel ranks have to sum.

        Raises:
            BackendError: it cannot be loaded or laid out as asked.
        """
        with one_at_a_time():
            model = load_causal_lm(folder, torch.float32, _HOST)
            valuer = Valuer(model, folder, self._options, self._ranks.device, self._dtype)
            summed = self._finish(valuer, model, is_trained=True)
        return valuer, summed

    def _finish(self, root: Scorer | Valuer, model: Any, *, is_trained: bool) -> frozenset[str]:
        if is_trained:
            _train_every_row(model)
            if self._options.gradient_checkpointing:
                enable_checkpointing(model)
        mesh = self._ranks.tensor_mesh
        split = split_matrices(model, mesh) if mesh is not None else frozenset()
        summed = frozenset(name for name, parameter in root.trained().items() if id(parameter) in split)
        if isinstance(root, Valuer):
            shard_wide(root.value_head, self._ranks, self._options)
        shard_module(root, self._ranks, self._options, self._dtype if is_trained else None)
        return summed


def _train_every_row(model: Any) -> None:
    """Let the embedding of the padding token learn too: nothing is padded here, and it often ends a turn as well."""
    table = model.get_input_embeddings()
    if isinstance(table, nn.Embedding):
        table.padding_idx = None


def idle_batch() -> Batch:
    """One segment of two tokens, for a rank that only has to keep the others company."""
    return Batch(
        token_ids=np.zeros(2, np.int32),
        offsets=np.array([0, 2], np.int64),
        response_mask=np.array([False, True]),
        loss_mask=np.zeros(2, np.bool_),
        rollout_logprobs=np.zeros(2, np.float32),
        segment_rollout=np.zeros(1, np.int64),
        rollout_group=np.zeros(1, np.int64),
        rollout_domain=np.zeros(1, np.int64),
        domains=("idle",),
        rewards=np.zeros(1, np.float32),
        scores=np.zeros(1, np.float32),
    )
