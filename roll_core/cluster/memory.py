"""Memory a role needs on one device: stated formulas, bounds where the truth depends on the data.

P parameters, L layers, h hidden size, V vocabulary, T tokens of a micro-batch, n devices of the trainer, t devices that
share a layer, r rank of adapters.

=================  =====================================================================================
weights            4P/n master copies in float32; 2P/n when only adapters are trained
gradients          4P/n, or 4A/n for A adapter parameters
optimiser          8P/n, or 8A/n: two moments in float32
gathered           6 bytes x (a layer's parameters)/t + 2Vh/t: the layer at work, the next one, a gradient
activations        2 bytes x T x (activation numbers)/t for one layer, and T h for every layer's input under
                   checkpointing; for all L layers without
logits             12 bytes x min(T, chunk) x V/t: logits, their softmax, the gradient
reference          2P/n + the gathered layer
critic             as the actor, always with all weights
rollout weights    2P/t
KV cache           2 x 2 bytes x L x KV heads x head size, per token; over min(t, KV heads) devices
reserve            1.5 GB on every device for the driver's context and communication buffers
=================  =====================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roll_core.cluster.model_shape import ModelShape

RESERVE = 1_500_000_000
"""Bytes of a device that the driver's context and communication buffers take."""


@dataclass(frozen=True, slots=True)
class TrainLoad:
    """What the trainer's processes hold and compute."""

    actor: ModelShape
    micro_tokens: int
    """Most tokens computed at once on one data-parallel rank."""
    lora_rank: int | None = None
    reference: ModelShape | None = None
    teachers: tuple[ModelShape, ...] = ()
    critic: ModelShape | None = None
    is_checkpointed: bool = False
    """Gradient checkpointing."""
    logprob_chunk: int = 2048
    """Most rows of logits at once."""


@dataclass(frozen=True, slots=True)
class RolloutLoad:
    """What one engine holds."""

    model: ModelShape
    longest: int
    """Tokens of the longest rollout."""
    group_size: int


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of one device by role and purpose."""

    terms: dict[str, dict[str, float]] = field(default_factory=dict)
    host: float = 0.0
    """Bytes in the machine's memory for the same process, all the time."""

    @property
    def total(self) -> float:
        """All of it."""
        return sum(sum(terms.values()) for terms in self.terms.values())

    @property
    def parked(self) -> float:
        """What has to be kept elsewhere when the device is lent: weights and optimiser (gradients are made anew)."""
        return sum(terms.get(name, 0.0) for terms in self.terms.values() for name in ("weights", "optimiser"))


def train_memory(load: TrainLoad, devices: int, tensor_parallel: int, *, cpu_offload: bool) -> Memory:
    """Memory of one trainer process.

    Args:
        load: models and sizes.
        devices: of the trainer together.
        tensor_parallel: devices that share a layer.
        cpu_offload: sharded states are kept in the machine's memory.
    """
    terms = {"actor": _trained(load.actor, load, devices, tensor_parallel, load.lora_rank)}
    if load.critic is not None:
        terms["critic"] = _trained(load.critic, load, devices, tensor_parallel, None)
    frozen = [("reference", load.reference), *((f"teacher {i}", shape) for i, shape in enumerate(load.teachers))]
    for name, shape in frozen:
        if shape is not None:
            terms[name] = {"weights": 2 * shape.parameters / devices, "gathered": _gathered(shape, tensor_parallel, 4)}
    host = 0.0
    if cpu_offload:
        for own in terms.values():
            host += sum(own.pop(name, 0.0) for name in ("weights", "gradients", "optimiser"))
    return Memory(terms, host)


def sharded_weights(load: TrainLoad, devices: int) -> float:
    """Bytes of the actor's weight shards on one device, which a weight sync reads."""
    return (2 if load.lora_rank else 4) * load.actor.parameters / devices


def rollout_weights(model: ModelShape, tensor_parallel: int) -> float:
    """Bytes of an engine's weights on one device."""
    return 2 * model.parameters / tensor_parallel


def kv_per_rollout(load: RolloutLoad, tensor_parallel: int) -> float:
    """Bytes of KV cache that the longest rollout needs on one device."""
    return load.longest * load.model.kv_bytes_per_token / min(tensor_parallel, load.model.kv_heads)


def _trained(
    shape: ModelShape, load: TrainLoad, devices: int, tensor_parallel: int, lora_rank: int | None
) -> dict[str, float]:
    trained, per_weight = float(shape.parameters), 4
    if lora_rank:
        trained, per_weight = float(lora_rank * shape.linear_numbers * shape.layers), 2
    tokens, layer = load.micro_tokens, 2 * load.micro_tokens * shape.activation_numbers / tensor_parallel
    inputs = 2 * tokens * shape.hidden * shape.layers
    weights = per_weight * shape.parameters / devices + (4 * trained / devices if lora_rank else 0.0)
    return {
        "weights": weights,
        "gradients": 4 * trained / devices,
        "optimiser": 8 * trained / devices,
        "gathered": _gathered(shape, tensor_parallel, 6),
        "activations": inputs + layer if load.is_checkpointed else shape.layers * layer,
        "logits": 12 * min(tokens, load.logprob_chunk) * shape.vocabulary / tensor_parallel,
    }


def _gathered(shape: ModelShape, tensor_parallel: int, per_parameter: int) -> float:
    embeddings = 2 * shape.vocabulary * shape.hidden
    return (per_parameter * shape.layer_parameters + embeddings) / tensor_parallel
