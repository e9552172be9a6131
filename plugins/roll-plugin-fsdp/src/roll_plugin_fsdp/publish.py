"""Whole tensors out of shards, one at a time, so that no rank ever holds a second copy of the model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from roll_core.builtin.local_train.persistence import export_dtype, export_model
from roll_core.builtin.local_train.weights import ModelWeights
from roll_core.contracts import TensorInfo
from roll_core.errors import CheckpointError
from roll_plugin_fsdp.messages import Published

_PIECE_BYTES = 64 << 20
"""Tensors travel to the driver together up to this size."""


def whole_tensors(model: Any, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """Canonical name and full tensor in host memory, adapters merged; every rank must walk through it in step."""
    for name, tensor in ModelWeights(model, dtype).tensors():
        full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        yield name, full.detach().cpu().contiguous()


def pieces(model: Any, dtype: torch.dtype, *, is_sender: bool) -> Iterator[Published]:
    """The published weights piece by piece; other ranks than the sender take part and yield empty pieces."""
    infos: list[TensorInfo] = []
    arrays: list[np.ndarray[Any, np.dtype[np.uint8]]] = []
    size = 0
    for name, tensor in whole_tensors(model, dtype):
        size += tensor.nbytes
        if is_sender:
            infos.append(TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)))
            arrays.append(tensor.reshape(-1).view(torch.uint8).numpy())
        if size >= _PIECE_BYTES:
            yield Published(infos, arrays)
            infos, arrays, size = [], [], 0
    if size:
        yield Published(infos, arrays)


def export_sharded(folder: Path, model: Any, source: Path, *, is_writer: bool) -> None:
    """Write a Hugging Face folder in the format its source had; every rank must call it, one writes.

    The writer holds the whole model in host memory while it writes.

    Raises:
        CheckpointError: the folder cannot be written.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    kept = {name: tensor for name, tensor in whole_tensors(model, export_dtype(source)) if is_writer}
    if not is_writer:
        return
    with torch.device("meta"):
        skeleton = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source))
    lacking = skeleton.state_dict().keys() - kept.keys() - _tied(skeleton)
    if lacking:
        raise CheckpointError(f"cannot export to '{folder}': the trained model lacks {', '.join(sorted(lacking)[:5])}")
    export_model(folder, skeleton, source, kept)


def _tied(model: Any) -> set[str]:
    """Names that share a tensor with an earlier name."""
    seen: set[int] = set()
    again: set[str] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) in seen:
            again.add(name)
        seen.add(id(tensor))
    return again
