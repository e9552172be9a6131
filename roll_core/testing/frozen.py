"""Finite differences of functions with stop-gradients: detached values keep what they were at the point itself.

A loss such as `-detach(weight(x)) * A * x` has, by intention, another gradient than its plain slope. Its gradient is
the slope with the detached factor held fixed, and that is what `slopes` measures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from roll_core.testing.kit import CheckFailed


class _Freezer(TorchFunctionMode):
    """Records what `detach` returns (and all that is computed without gradient), then replays it in order."""

    def __init__(self) -> None:
        super().__init__()
        self.recorded: list[Any] = []
        self.position: int | None = None
        """Index of the next value to replay; None while recording."""

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        del types
        result = func(*args, **(kwargs or {}))
        is_frozen = func in (Tensor.detach, torch.detach) or not torch.is_grad_enabled()
        if not (is_frozen and isinstance(result, Tensor)):
            return result
        if self.position is None:
            self.recorded.append(result)
            return result
        if self.position >= len(self.recorded):
            raise CheckFailed("the loss takes another path of computation when a log-prob changes a little")
        frozen = self.recorded[self.position]
        self.position += 1
        return frozen


def slopes(fn: Callable[[Tensor], Tensor], point: Tensor, step: float) -> tuple[Tensor, Tensor]:
    """One-sided slopes of `fn` along every coordinate of `point` [n], from the left and from the right, each [n].

    At a kink the two differ, and every subgradient lies between them.

    Args:
        fn: scalar function of a tensor [n].
        point: where to differentiate.
        step: distance of the second evaluation.
    """
    freezer = _Freezer()

    def value(shift: int | None, distance: float) -> float:
        x = point.detach().clone()
        if shift is not None:
            x[shift] += distance
        x.requires_grad_()
        with freezer:
            result = fn(x)
        return float(result.detach())

    middle = value(None, 0.0)
    left, right = torch.zeros_like(point.detach()), torch.zeros_like(point.detach())
    for i in range(len(point)):
        freezer.position = 0
        right[i] = (value(i, step) - middle) / step
        freezer.position = 0
        left[i] = (middle - value(i, -step)) / step
    return left, right
