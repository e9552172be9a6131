"""Which device computes, and in which floating-point format."""

from __future__ import annotations

import time
from functools import cache
from typing import Literal

import torch

from roll_core.errors import BackendError

Precision = Literal["auto", "float32", "bfloat16"]

_PROBE_SIZE = 512
_PROBE_REPEATS = 4
_WORTHWHILE = 1.3
"""bfloat16 must multiply this much faster than float32 before its rounding is accepted."""


def resolve_device(name: str) -> torch.device:
    """The device named `name`; "auto" takes the GPU where there is one.

    Raises:
        BackendError: the device does not exist here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BackendError(f"train.strategy.device '{name}' cannot be used here: {error}") from error
    return device


def resolve_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The format of the compute weights; "auto" takes bfloat16 where this device multiplies faster in it."""
    if precision == "auto":
        return torch.bfloat16 if _bfloat16_pays(device.type) else torch.float32
    return torch.float32 if precision == "float32" else torch.bfloat16


@cache
def _bfloat16_pays(device_type: str) -> bool:
    if device_type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device_type == "cpu" and _matmul_seconds(torch.float32) > _WORTHWHILE * _matmul_seconds(torch.bfloat16)


def _matmul_seconds(dtype: torch.dtype) -> float:
    """Best time of a small square product on the CPU; the first one warms up."""
    matrix = torch.full((_PROBE_SIZE, _PROBE_SIZE), 0.5, dtype=dtype)
    times = []
    for _ in range(_PROBE_REPEATS + 1):
        start = time.perf_counter()
        torch.mm(matrix, matrix)
        times.append(time.perf_counter() - start)
    return min(times[1:])
