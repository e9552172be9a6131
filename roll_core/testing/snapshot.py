"""A comparable picture of a value, to tell whether someone changed it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np


def snapshot(value: Any) -> Any:
    """Nested tuples that are equal if and only if two values hold the same data.

    Descends into dataclasses, mappings, sequences, numpy arrays and torch tensors.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return tuple((key, snapshot(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(snapshot(item) for item in value)
    return float.hex(value) if isinstance(value, float) else value
