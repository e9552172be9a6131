"""Float32 master weights beside the weights the model computes with.

In float32 the two are the same tensors. In bfloat16 every trained parameter gets a master: gradients are added to
the master's float32 buffer as soon as autograd has made them and freed at once, the optimiser works on the masters,
and `publish` rounds them back into the model. Nothing is cast during a forward or backward pass. The buffers live
as long as the run, since fresh memory costs more than the addition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn


class MasterWeights:
    """Owns the masters of the given parameters and collects their gradients.

    Args:
        parameters: what is trained, by name, in float32 or in `dtype`; parameters in another format than `dtype` are
            rounded to it, after their master has been taken.
        dtype: what the model computes in.
        keep_float32: further parameters that compute in float32 whatever `dtype` is.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        dtype: torch.dtype,
        keep_float32: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        wide = dict(keep_float32 or {})
        self._compute = {**parameters, **wide}
        self._masters: dict[str, nn.Parameter] = {}
        self._names = {id(parameter): name for name, parameter in self._compute.items()}
        self._untouched: set[str] = set()
        for name, parameter in self._compute.items():
            if dtype == torch.float32 or name in wide:
                parameter.data = parameter.data.float()
                master = parameter
            else:
                master = nn.Parameter(parameter.data.float())
                parameter.data = parameter.data.to(dtype)
                parameter.register_post_accumulate_grad_hook(self._collector(name))  # type: ignore[no-untyped-call]
            master.grad = torch.zeros_like(master)
            self._masters[name] = master

    @property
    def masters(self) -> Mapping[str, nn.Parameter]:
        """The float32 weights by name; their `grad` holds the summed gradient of the step."""
        return self._masters

    def begin(self) -> None:
        """Forget the gradients of the last step."""
        for name, master in self._masters.items():
            if master is self._compute[name]:
                self._buffer(name).zero_()
            else:
                self._untouched.add(name)

    def finish(self) -> list[Tensor]:
        """The gradients of the step; zeros for parameters that took no part."""
        for name in list(self._untouched):
            self.gradient(name)
        return [self._buffer(name) for name in self._masters]

    def gradient(self, name: str) -> Tensor:
        """The float32 buffer that the gradient of `name` is summed in, ready to be added to."""
        buffer = self._buffer(name)
        if name in self._untouched:
            self._untouched.discard(name)
            buffer.zero_()
        return buffer

    def gradient_of(self, parameter: Tensor) -> Callable[[], Tensor] | None:
        """A function that gives the buffer of `parameter`, or None where it is not trained."""
        name = self._names.get(id(parameter))
        return None if name is None else lambda: self.gradient(name)

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters into the weights the model computes with."""
        for name, master in self._masters.items():
            if master is not self._compute[name]:
                self._compute[name].copy_(master)

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Take over masters saved earlier.

        Raises:
            KeyError: names or shapes differ.
        """
        if weights.keys() != self._masters.keys():
            raise KeyError(f"weights differ by name: {', '.join(sorted(weights.keys() ^ self._masters.keys())[:5])}")
        for name, master in self._masters.items():
            if master.shape != weights[name].shape:
                raise KeyError(f"'{name}' has shape {tuple(weights[name].shape)}, not {tuple(master.shape)}")
            master.copy_(weights[name])
        self.publish()

    def _buffer(self, name: str) -> Tensor:
        grad = self._masters[name].grad
        if grad is None:
            grad = self._masters[name].grad = torch.zeros_like(self._masters[name])
        return grad

    def _collector(self, name: str) -> Callable[[Tensor], None]:
        def collect(parameter: Tensor) -> None:
            grad, parameter.grad = parameter.grad, None
            if grad is None:
                return
            if name in self._untouched:
                self._untouched.discard(name)
                self._buffer(name).copy_(grad)
            else:
                self._buffer(name).add_(grad)

        return collect
