"""Weights on their way to replicas: all tensors of a source as plain bytes, packed once for everybody."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from roll_core.contracts import TensorInfo, WeightSource


@dataclass(frozen=True, slots=True)
class _Item:
    info: TensorInfo
    data: np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Parcel:
    """A `contracts.WeightSource` that pickles without a copy. Made by `of`, from all that a source delivers."""

    items: tuple[_Item, ...]

    @classmethod
    def of(cls, source: WeightSource) -> Parcel:
        """Read a source to its end; tensors that lie contiguous on the CPU are referred to, not copied."""
        return cls(tuple(_Item(_info(name, tensor), _bytes(tensor)) for name, tensor in source.tensors()))

    def manifest(self) -> list[TensorInfo]:
        """See `WeightSource`."""
        return [item.info for item in self.items]

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """See `WeightSource`; each tensor is a copy, since what arrives is read-only."""
        for item in self.items:
            dtype: torch.dtype = getattr(torch, item.info.dtype)
            yield item.info.name, torch.tensor(item.data).view(dtype).reshape(item.info.shape)


def _info(name: str, tensor: Tensor) -> TensorInfo:
    return TensorInfo(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape))


def _bytes(tensor: Tensor) -> np.ndarray[Any, np.dtype[np.uint8]]:
    flat = tensor.detach().to("cpu").contiguous().reshape(-1)
    data: np.ndarray[Any, np.dtype[np.uint8]] = flat.view(torch.uint8).numpy()
    return data
