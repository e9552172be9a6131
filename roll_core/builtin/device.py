"""Which device the local engines compute on, and in which floating-point format: trainer and sampler agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from roll_core.errors import BackendError

Precision = Literal["auto", "float32", "bfloat16"]

_BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")


def resolve_device(name: str, place: str) -> torch.device:
    """The device named `name`; "auto" takes the GPU where there is one.

    Args:
        name: "auto", "cpu", "cuda", "cuda:1" and so on.
        place: the config path it came from.

    Raises:
        BackendError: the device does not exist here.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BackendError(f"{place} '{name}' cannot be used here: {error}") from error
    return device


def resolve_dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """The format to compute in; "auto" takes bfloat16 where the device multiplies in it natively."""
    if precision != "auto":
        return torch.float32 if precision == "float32" else torch.bfloat16
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        native = device.type == "cpu" and cpu_prefers_bfloat16()
    return torch.bfloat16 if native else torch.float32


def cpu_prefers_bfloat16() -> bool:
    """Whether this CPU has instructions that multiply bfloat16, about twice as fast as float32.

    Asked of the processor, not measured: a run that is resumed on a busy machine must not change its precision.
    """
    capabilities: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(bool(capabilities.get(name)) for name in _BF16_INSTRUCTIONS)
