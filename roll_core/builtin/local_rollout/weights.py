"""Takes new weights into a loaded model: first everything is checked, then everything is copied."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from roll_core.contracts import TensorInfo, WeightSource
from roll_core.errors import BackendError

_NAMED = 8
"""How many names an error lists."""


class WeightSink:
    """Copies a `WeightSource` into the parameters and saved buffers of `model`, in place and in the model's dtype."""

    def __init__(self, model: Any) -> None:
        self._targets: dict[str, Tensor] = {name: value.detach() for name, value in model.state_dict().items()}

    def manifest(self) -> list[TensorInfo]:
        """What the model holds; tensors that share memory (a tied output layer) appear once for each name."""
        return [TensorInfo(n, str(t.dtype).removeprefix("torch."), tuple(t.shape)) for n, t in self._targets.items()]

    def check(self, source: WeightSource) -> frozenset[str]:
        """Names that `source` announces.

        Raises:
            BackendError: names are missing or unexpected, or shapes differ; the error names them.
        """
        return self._compare(list(source.manifest()))

    def load(self, source: WeightSource, names: frozenset[str]) -> None:
        """Copy every tensor of a checked source.

        Raises:
            BackendError: the source delivered something else than it announced. Some weights are then new.
        """
        outstanding = set(names)
        with torch.no_grad():
            for name, tensor in source.tensors():
                if name not in outstanding:
                    raise BackendError(f"the weight source delivered '{name}' twice or without announcing it")
                outstanding.discard(name)
                target = self._targets[name]
                if tuple(tensor.shape) != tuple(target.shape):
                    shapes = f"{tuple(tensor.shape)}, announced {tuple(target.shape)}"
                    raise BackendError(f"the weight source delivered '{name}' with shape {shapes}")
                target.copy_(tensor)
        if outstanding:
            raise BackendError(f"the weight source did not deliver {_listed(outstanding)}")

    def _compare(self, manifest: list[TensorInfo]) -> frozenset[str]:
        given = {info.name: info for info in manifest}
        unexpected = given.keys() - self._targets.keys()
        held = {self._targets[name].data_ptr() for name in given.keys() & self._targets.keys()}
        missing = {
            name for name, tensor in self._targets.items() if name not in given and tensor.data_ptr() not in held
        }
        wrong = {
            f"{name} (given {tuple(info.shape)}, the model has {tuple(self._targets[name].shape)})"
            for name, info in given.items()
            if name in self._targets and tuple(info.shape) != tuple(self._targets[name].shape)
        }
        faults = {"missing": missing, "unexpected": unexpected, "of another shape": wrong}
        text = "; ".join(f"{kind}: {_listed(names)}" for kind, names in faults.items() if names)
        if text:
            raise BackendError(f"these weights do not fit the rollout model: {text}; both must be one architecture")
        return frozenset(given)


def _listed(names: set[str]) -> str:
    shown = sorted(names)[:_NAMED]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(shown) + more
