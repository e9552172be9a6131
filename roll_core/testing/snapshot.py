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
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return (type(value).__name__, *((f.name, snapshot(getattr(value, f.name))) for f in fields))
    if isinstance(value, Mapping):
        return tuple((key, snapshot(item)) for key, item in value.items())
    if isinstance(value, list | tuple):
        return tuple(snapshot(item) for item in value)
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tobytes())
    if hasattr(value, "detach"):
        return snapshot(value.detach().cpu().numpy())
    if isinstance(value, float):
        return float.hex(value)
    return value
