"""vLLM's side of a weight update: the engine of its weight-transfer system that every worker has.

vLLM's protocol has four phases (init, start, update, finish), of which `update` may come several times. Through shared
memory it comes twice: "stage" maps and verifies the new weights and touches nothing, "load" loads them. When loading
fails the old weights are loaded again, from their own shared memory or, before the first update, from the model folder.
A direct update ("begin", "receive" once or more, "end") is left to another engine of vLLM's factory.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor
from vllm.config.weight_transfer import WeightTransferConfig
from vllm.distributed.weight_transfer import WeightTransferEngine, WeightTransferEngineFactory
from vllm.distributed.weight_transfer.base import WeightTransferInitInfo, WeightTransferUpdateInfo
from vllm.model_executor.model_loader import get_model_loader
from vllm.model_executor.model_loader.mtp_validation import disable_mtp_completeness_check
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

from roll_core.errors import BackendError
from roll_plugin_vllm.segment import Attached, Shipment

logger = logging.getLogger(__name__)

BACKEND = "roll"
"""Name of the engine in vLLM's factory."""
ENGINES = {"gloo": "roll_gloo", "nccl": "nccl", "ipc": "ipc"}
"""Names of the engines of direct updates there."""


@dataclass
class RollInit(WeightTransferInitInfo):  # type: ignore[misc]  # vLLM is not there where types are checked
    """What a direct way has to agree on; shared memory needs nothing."""

    route: str = ""
    info: dict[str, Any] = field(default_factory=dict)
    """Init info of the route's engine."""


@dataclass
class RollUpdate(WeightTransferUpdateInfo):  # type: ignore[misc]  # vLLM is not there where types are checked
    """One part of an update."""

    phase: Literal["stage", "load", "begin", "receive", "end"]
    shipment: dict[str, Any] = field(default_factory=dict)
    """For "stage": `Shipment.to_dict`."""
    info: dict[str, Any] = field(default_factory=dict)
    """For "receive": update info of the route's engine."""


class RollEngine(WeightTransferEngine[RollInit, RollUpdate]):  # type: ignore[misc]  # as above
    """Loads weights out of shared memory, wholly or not at all; or has another engine receive them."""

    init_info_cls = RollInit
    update_info_cls = RollUpdate
    supports_draft_weight_update = False

    _staged: Attached | None = None
    _current: Attached | None = None
    _direct: Any = None

    def init_transfer_engine(self, init_info: RollInit) -> None:
        """Connect a direct way, in place of an earlier one."""
        if self._direct is not None:
            self._direct.shutdown()
            self._direct = None
        if init_info.route:
            config = WeightTransferConfig(backend=ENGINES[init_info.route])
            engine = WeightTransferEngineFactory.create_engine(config, self.vllm_config, self.device, self.model)
            engine.init_transfer_engine(engine.parse_init_info(init_info.info))
            self._direct = engine

    def start_weight_update(self) -> None:
        """Forget what an update that was broken off had staged."""
        self._staged = None

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """One part; without the device synchronisation of the base class, which CPUs do not have."""
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: RollUpdate) -> None:
        """One part.

        Raises:
            BackendError: new weights cannot be reached, are damaged, or do not fit; the old ones are in use.
        """
        if update_info.phase == "stage":
            staged = Attached(Shipment.from_dict(update_info.shipment))
            staged.verify()
            self._staged = staged
        elif update_info.phase == "load":
            self._load_staged()
        elif self._direct is None:
            raise BackendError("no direct way for weights is connected")
        elif update_info.phase == "begin":
            self._direct.start_weight_update()
        elif update_info.phase == "receive":
            self._direct.update_weights(update_info.info)
        else:
            self._direct.finish_weight_update()
            self._current = None  # it is of an earlier version

    def finish_weight_update(self) -> None:
        """Nothing is left to do: loading has ended when `update` returned."""
        self._staged = None

    def shutdown(self) -> None:
        """Give mapped weights and connections up."""
        self._staged = self._current = None
        if self._direct is not None:
            self._direct.shutdown()

    def _load_staged(self) -> None:
        if self._staged is None:
            raise BackendError("there are no staged weights to load")
        try:
            load_weights(self, self._staged.tensors())
        except Exception as error:
            logger.warning("loading new weights failed, the old ones are loaded again: %s", error)
            self._staged = None
            load_weights(self, self._old_weights())
            raise
        self._current, self._staged = self._staged, None

    def _old_weights(self) -> Iterable[tuple[str, Tensor]]:
        if self._current is not None:
            return self._current.tensors()
        loader: Any = get_model_loader(self.vllm_config.load_config)
        weights: Iterable[tuple[str, Tensor]] = loader.get_all_weights(self.model_config, self.model)
        return weights


def load_weights(engine: Any, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Load a whole set of weights, under their Hugging Face names, into the model of a transfer engine.

    Raises:
        BackendError: parameters of the model got nothing.
    """
    model: Any = engine.model
    wanted = {name for name, _ in model.named_parameters()}
    initialize_layerwise_reload(model)
    try:
        with disable_mtp_completeness_check():
            loaded = model.load_weights(weights)
    finally:
        finalize_layerwise_reload(model, engine.model_config)
        if engine.device.type == "cpu":
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
    """Make the engines known to vLLM in this process; once more does nothing."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, RollEngine)
        WeightTransferEngineFactory.register_engine(ENGINES["gloo"], "roll_plugin_vllm.gloo", "GlooEngine")
