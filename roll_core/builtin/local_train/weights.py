"""Publishes the policy's weights under canonical Hugging Face names, adapters merged on the fly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from roll_core.contracts import TensorInfo

_PEFT_PREFIX = "base_model.model."
_PEFT_BASE = ".base_layer."
_ADAPTER = "default"
"""PEFT's name for the one adapter there is."""


class ModelWeights:
    """A `WeightSource` over a causal language model, with or without peft adapters.

    Tensors are the model's own, uncopied and in the format it computes with, except merged ones. A tensor that two
    names share is published once, under its first name.

    Args:
        model: the model, or the peft model around it.
        dtype: format of what is published; None for the model's own.
        lookup: gives the float32 master of a parameter by its name in `model`, where it should be published in
            place of the parameter.
    """

    def __init__(
        self, model: Any, dtype: torch.dtype | None = None, lookup: Callable[[str], Tensor | None] | None = None
    ) -> None:
        self._model = model
        self._dtype = dtype
        self._lookup = lookup

    def manifest(self) -> Sequence[TensorInfo]:
        """Name, dtype and shape of every tensor, in the order of `tensors`."""
        kinds = ((name, tensor, self._dtype if tensor.is_floating_point() else None) for name, tensor, _ in self._own())
        return [
            TensorInfo(name, str(kind or tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor, kind in kinds
        ]

    @torch.no_grad()
    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Name and tensor, one after the other; not to be changed by who reads them."""
        for name, tensor, merge in self._own():
            merged = tensor if merge is None else (tensor.float() + merge().float()).to(self._dtype or tensor.dtype)
            yield name, merged.to(self._dtype) if self._dtype and merged.is_floating_point() else merged

    # What a backend that serves adapters asks for, where only the adapter is trained.

    def adapter_config(self) -> Mapping[str, Any] | None:
        """PEFT's configuration of the adapter; None where the whole model is trained."""
        return self._model.peft_config[_ADAPTER].to_dict() if hasattr(self._model, "peft_config") else None

    def adapter_manifest(self) -> Sequence[TensorInfo]:
        """Name as PEFT writes it, dtype and shape of every tensor of the adapter, in the order of `adapter_tensors`."""
        return [
            TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))
            for name, tensor in self.adapter_tensors()
        ]

    def adapter_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The adapter's tensors, one after the other; not to be changed by who reads them."""
        from peft import get_peft_model_state_dict

        for name, tensor in get_peft_model_state_dict(self._model, adapter_name=_ADAPTER).items():
            yield name, tensor.detach()

    def _own(self) -> Iterator[tuple[str, Tensor, Callable[[], Tensor] | None]]:
        """Canonical name, tensor, and what adapters add to it, if any."""
        from peft.tuners.lora import LoraLayer

        seen: set[int] = set()
        layers = {name: module for name, module in self._model.named_modules() if isinstance(module, LoraLayer)}
        for raw, tensor in self._model.state_dict(keep_vars=True).items():
            if ".lora_" in raw or id(tensor) in seen:
                continue
            seen.add(id(tensor))
            owner, _, last = raw.partition(_PEFT_BASE)
            layer = layers.get(owner) if last == "weight" else None
            merge = _delta(layer) if layer is not None else None
            master = self._lookup(raw) if self._lookup is not None else None
            name = raw.removeprefix(_PEFT_PREFIX).replace(_PEFT_BASE, ".")
            yield name, tensor.detach() if master is None else master.detach(), merge


def _delta(layer: Any) -> Callable[[], Tensor]:
    return lambda: layer.get_delta_weight(_ADAPTER)
