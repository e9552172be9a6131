"""The policy's adapter on its own: what a weight source may offer beside merged weights, and how it reaches vLLM."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from roll_core.contracts import TensorInfo
from roll_plugin_vllm.segment import Attached

if TYPE_CHECKING:
    from torch import Tensor


@runtime_checkable
class AdapterSource(Protocol):
    """A weight source that can give the adapter without the model it belongs to."""

    def adapter_config(self) -> Mapping[str, Any] | None:
        """What peft writes to `adapter_config.json` (rank, alpha, target modules ...); None without an adapter."""
        ...

    def adapter_manifest(self) -> Sequence[TensorInfo]:
        """Names as peft writes them (`base_model.model.<module>.lora_A.weight`), dtypes, shapes."""
        ...

    def adapter_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors, in the order of the manifest."""
        ...


def write_adapter(attached: Attached, config: Mapping[str, Any]) -> tempfile.TemporaryDirectory[str]:
    """Write verified adapter weights as a folder in PEFT format, which is what vLLM loads adapters from."""
    from safetensors.torch import save_file

    folder = tempfile.TemporaryDirectory(prefix="roll-adapter-")
    path = Path(folder.name)
    (path / "adapter_config.json").write_text(json.dumps(dict(config), default=sorted), encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in attached.tensors()}, path / "adapter_model.safetensors")
    return folder
