"""The value model: a backbone of its own and a scalar head that starts at zero."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roll_core.builtin.local_train.layout import Layout
from roll_core.builtin.local_train.loading import backbone_of, load_causal_lm
from roll_core.builtin.local_train.masters import MasterWeights
from roll_core.builtin.local_train.model import Backbone, LayoutKind

VALUE_HEAD = "value_head"


class Critic:
    """Predicts the return of a sampled token from the tokens before it.

    Args:
        folder: the causal language model it starts from; its output layer is not used.
        dtype: what the backbone computes in; the head stays in float32.
        device: where it lives.
        layout: as for the policy.
        gradient_checkpointing: compute activations again in the backward pass.
    """

    def __init__(
        self, folder: Path, dtype: torch.dtype, device: torch.device, layout: LayoutKind, gradient_checkpointing: bool
    ) -> None:
        model = load_causal_lm(folder, torch.float32, device)
        layers = backbone_of(model)
        self.head = value_head(model).to(device)
        head = {f"{VALUE_HEAD}.{name}": parameter for name, parameter in self.head.named_parameters()}
        self.weights = MasterWeights(dict(layers.named_parameters()), dtype, keep_float32=head)
        if gradient_checkpointing:
            enable_checkpointing(model)
        self.backbone = Backbone(model, folder, layout, self.weights)

    def values(self, layout: Layout) -> Tensor:
        """Values [m] of the scored tokens of a micro-batch, float32."""
        out: Tensor = self.head(self.backbone.hidden(layout).float())
        return out[:, 0]


def value_head(model: Any) -> nn.Linear:
    """A head of zeros, in float32 on the CPU, for the hidden states of `model`."""
    head = nn.Linear(model.config.get_text_config().hidden_size, 1, dtype=torch.float32)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    return head


def enable_checkpointing(model: Any) -> None:
    """Keep only each layer's input between forward and backward."""
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
