"""vLLM's side of a weight update: an engine for its weight-transfer system that reads shared memory.

vLLM's protocol has four phases (init, start, update, finish). `update` comes twice here: the first maps and verifies
the new weights and touches nothing, the second loads them. When loading fails the old weights are loaded again, from
their own shared memory or, before the first update, from the model folder.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from roll_core.errors import BackendError
from roll_plugin_vllm.segment import Attached, Shipment

logger = logging.getLogger(__name__)

BACKEND = "roll_shared_memory"
"""Name of the engine in vLLM's factory."""


@dataclass
class SharedMemoryInit(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not there where types are checked
    """Nothing has to be agreed on beforehand."""


@dataclass
class SharedMemoryUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]  # vLLM is not there where types are checked
    """One of the two updates."""

    phase: str
    """"stage" or "load"."""
    shipment: dict[str, Any] = field(default_factory=dict)
    """For "stage": `Shipment.to_dict`."""


class SharedMemoryEngine(WeightTransferEngine[SharedMemoryInit, SharedMemoryUpdate]):  # type: ignore[misc]  # as above
    """Loads weights out of a segment of this machine, wholly or not at all."""

    init_info_cls = SharedMemoryInit
    update_info_cls = SharedMemoryUpdate
    supports_draft_weight_update = False

    _staged: Attached | None = None
    _current: Attached | None = None

    def init_transfer_engine(self, init_info: SharedMemoryInit) -> None:
        """Nothing to open: each shipment says where it is."""

    def start_weight_update(self) -> None:
        """Forget what an update that was broken off had staged."""
        self._staged = None

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Stage or load; without the device synchronisation of the base class, since copies from the host block."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: SharedMemoryUpdate) -> None:
        """Stage or load.

        Raises:
            BackendError: the new weights cannot be reached, are damaged, or do not fit; the old ones are in use.
        """
        if update_info.phase == "stage":
            staged = Attached(Shipment.from_dict(update_info.shipment))
            staged.verify()
            self._staged = staged
            return
        if self._staged is None:
            raise BackendError("there are no staged weights to load")
        try:
            self._load(self._staged.tensors())
        except Exception as error:
            logger.warning("loading new weights failed, the old ones are loaded again: %s", error)
            self._staged = None
            self._load(self._old_weights())
            raise
        self._current, self._staged = self._staged, None

    def finish_weight_update(self) -> None:
        """Nothing is left to do: loading has ended when `update` returned."""
        self._staged = None

    def shutdown(self) -> None:
        """Give the mapped weights up."""
        self._staged = self._current = None

    def _old_weights(self) -> Iterable[tuple[str, Tensor]]:
        if self._current is not None:
            return self._current.tensors()
        loader: Any = get_model_loader(self.vllm_config.load_config)
        weights: Iterable[tuple[str, Tensor]] = loader.get_all_weights(self.model_config, self.model)
        return weights

    def _load(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        model: Any = self.model
        wanted = {name for name, _ in model.named_parameters()}
        initialize_layerwise_reload(model)
        try:
            with disable_mtp_completeness_check():
                loaded = model.load_weights(weights)
        finally:
            finalize_layerwise_reload(model, self.model_config)
            if self.device.type == "cpu":
                pack_tied_layers(model)
        missing = wanted - loaded if loaded is not None else set()
        if missing:
            raise BackendError(f"the new weights lack what {', '.join(sorted(missing)[:8])} are made of")


def pack_tied_layers(model: torch.nn.Module) -> None:
    """Pack the weights of layers that share them with an earlier layer (a tied output layer) anew.

    On CPUs vLLM multiplies with packed copies. Its reloading makes them anew for layers that are loaded, which a tied
    layer is not: it would go on with the copy of the old weights.
    """
    seen: set[int] = set()
    for layer in model.modules():
        own = {id(parameter) for parameter in layer.parameters(recurse=False)}
        method = getattr(layer, "quant_method", None)
        if own & seen and method is not None:
            method.process_weights_after_loading(layer)
        seen |= own


def register() -> None:
    """Make the engine known to vLLM in this process; once more does nothing."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, SharedMemoryEngine)
