"""Limits of one run, as tests write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roll_core.sandbox.types import Limits
from roll_verifier_code.errors import TaskError, check_keys, shown

FIELDS = {
    "time_s": "cpu_s",
    "mem_mb": "memory_mb",
    "out_kb": "output_kb",
    "procs": "processes",
    "disk_mb": "disk_mb",
    "wall_s": "wall_s",
}
"""What tests call a limit, and what the sandbox calls it."""

_MOST = 1e9


def read_limits(*layers: Mapping[str, Any] | None) -> Limits:
    """Limits out of mappings with `time_s`, `wall_s` (seconds), `mem_mb`, `disk_mb` (MiB), `out_kb` (KiB) and `procs`.

    Args:
        layers: later ones override earlier ones, key by key; None stands for an empty one.

    Raises:
        TaskError: an unknown key, or a value that is no positive number.
    """
    merged: dict[str, float] = {}
    for layer in layers:
        if layer is None:
            continue
        if not isinstance(layer, Mapping):
            raise TaskError(f"limits must be a mapping such as {{'time_s': 5}}, got {shown(layer)}")
        check_keys(layer, FIELDS, "limits")
        for key, value in layer.items():
            merged[FIELDS[key]] = _number(key, value)
    whole = {name: value if name.endswith("_s") else max(1, int(value)) for name, value in merged.items()}
    return Limits(**whole)  # type: ignore[arg-type] # mypy cannot see that only the names in seconds get floats


def _number(key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= _MOST:
        raise TaskError(f"limits: '{key}' must be a positive number, got {shown(value)}")
    return value
