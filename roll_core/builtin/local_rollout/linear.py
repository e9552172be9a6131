"""Linear layers in the fastest form the device has for a few dozen rows.

On a CPU, oneDNN multiplies with weights that were reordered beforehand markedly faster than with plain ones (and, on
some processors, several times faster than the float32 BLAS). Everywhere else this is `torch.nn.functional.linear`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional


@functools.cache
def packing_works(dtype: torch.dtype) -> bool:
    """Whether this build and processor multiply with packed weights of `dtype`, checked on a small product."""
    if not torch._C._has_mkldnn or dtype not in (torch.float32, torch.bfloat16):
        return False
    weight = torch.linspace(-1, 1, 16 * 32).reshape(16, 32).to(dtype)
    inputs = torch.linspace(-1, 1, 3 * 32).reshape(3, 32).to(dtype)
    try:
        product = _multiply_packed(inputs, _pack(weight), None)
    except (RuntimeError, AttributeError):  # built without the operators, or a processor they refuse
        return False
    return torch.allclose(product.float(), functional.linear(inputs, weight).float(), rtol=2e-2, atol=2e-2)


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return packed


def _multiply_packed(inputs: Tensor, packed: Tensor, bias: Tensor | None) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, packed, bias, "none", [], "")
    return product


def round_rows(rows: int) -> int:
    """`rows` rounded up to one of four numbers an octave (.., 8, 10, 12, 14, 16, 20, ..), at most a quarter more.

    A CPU's libraries compile, and keep, code for every number of rows they meet: about half a megabyte for each layer
    shape. With rounded numbers that ends after a few dozen, and memory stays flat.
    """
    step = 1 << max(rows.bit_length() - 3, 0)
    return -(-rows // step) * step


def _two(rows: Tensor) -> Tensor:
    """`rows`, a lone one twice: alone, another kernel multiplies it, and what a request draws would depend on that."""
    return rows if len(rows) > 1 else torch.cat((rows, rows))


class Dense:
    """One or more linear layers over the same input, computed as one product.

    Args:
        weights: [out_i, in] each; stacked along `out`. They stay the owner's: `refresh` reads them again.
        biases: [out_i] each, or empty for none.
    """

    def __init__(self, weights: Sequence[Tensor], biases: Sequence[Tensor] = ()) -> None:
        self._weights, self._biases = tuple(weights), tuple(biases)
        self._is_packed = self._weights[0].device.type == "cpu" and packing_works(self._weights[0].dtype)
        self._weight: Tensor
        self._bias: Tensor | None
        self.refresh()

    def refresh(self) -> None:
        """Take over the present values of the weights."""
        weight = self._weights[0] if len(self._weights) == 1 else torch.cat(self._weights)
        self._weight = _pack(weight.contiguous()) if self._is_packed else weight
        self._bias = torch.cat(self._biases) if self._biases else None

    def __call__(self, inputs: Tensor) -> Tensor:
        """Multiply `inputs` [N, in] to [N, sum(out_i)]."""
        if self._is_packed:
            return _multiply_packed(_two(inputs), self._weight, self._bias)[: len(inputs)]
        return functional.linear(inputs, self._weight, self._bias)

    def plus(self, inputs: Tensor, residual: Tensor) -> Tensor:
        """`self(inputs) + residual`, added inside the product where the device can."""
        if self._is_packed:
            fused: Callable[..., Tensor] = torch.ops.mkldnn._linear_pointwise.binary
            return fused(_two(inputs), _two(residual), self._weight, self._bias, "add")[: len(inputs)]
        return residual + functional.linear(inputs, self._weight, self._bias)
