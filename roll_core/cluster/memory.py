"""Memory a role needs on one device: stated formulas, bounds where the truth depends on the data.

P parameters, of them E in embedding and output layer; L layers, the largest of l parameters; h hidden size, V
vocabulary, T tokens of a micro-batch, t devices that share a layer, n devices that the states are sharded over (copies
of hybrid sharding left out), r rank of adapters. Sharing a layer leaves E whole: S = (P - E)/n + E t/n is a device's
share of the states.

=================  =====================================================================================
weights            4S master copies in float32; 2S when only adapters are trained
gradients          4S, or 4A/n for A adapter parameters
optimiser          8S, or 8A/n: two moments in float32
gathered           E in 2 bytes all the time, its gradient in 2, and the larger of: 10 bytes x l/t (the layer at work,
                   the next one, its gradient, its sum over ranks in float32), 4E (that of E). Adapters: 2E + 4l/t.
                   Without resharding between the passes all layers stay, 2(P - E)/t more
activations        2 bytes x T x (activation numbers)/t for one layer, and T h for every layer's input under
                   checkpointing; for all L layers without
logits             12 bytes x min(T, chunk) x V: logits, their softmax, the gradient
reference          2S + 2E + 4l/t
critic             as the actor, always with all weights
rollout weights    2P/t
KV cache           2 bytes x the numbers a token has in the cache (2 x KV heads x head size, or its latent) x L; over
                   min(t, KV heads) devices, a latent on each
reserve            1.5 GB for each process on a device, its context and communication buffers
=================  =====================================================================================

Source: arXiv:1910.02054 (states of mixed-precision training), arXiv:2205.05198 (activations).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from roll_core.cluster.model_shape import ModelShape

RESERVE = 1_500_000_000
"""Bytes of a device that one process's context and communication buffers take."""


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
    replicate: int = 1
    """Copies of the sharded states (hybrid sharding)."""
    is_resharded: bool = True
    """Whether a layer's gathered weights are freed between forward and backward."""


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
    def resident(self) -> float:
        """What stays on the device between two updates: weights and optimiser (gradients are made anew)."""
        return sum(terms.get(name, 0.0) for terms in self.terms.values() for name in ("weights", "optimiser"))


def train_memory(load: TrainLoad, devices: int, tensor_parallel: int, *, cpu_offload: bool) -> Memory:
    """Memory of one trainer process.

    Args:
        load: models and sizes.
        devices: of the trainer together.
        tensor_parallel: devices that share a layer.
        cpu_offload: sharded states are kept in the machine's memory.
    """
    split = _Split(devices // load.replicate, tensor_parallel)
    terms = {"actor": _trained(load.actor, load, split, load.lora_rank)}
    if load.critic is not None:
        terms["critic"] = _trained(load.critic, load, split, None)
    frozen = [("reference", load.reference), *((f"teacher {i}", shape) for i, shape in enumerate(load.teachers))]
    for name, shape in frozen:
        if shape is not None:
            gathered = 2 * shape.embeddings + 4 * shape.layer_parameters / tensor_parallel
            terms[name] = {"weights": 2 * split.share(shape), "gathered": gathered}
    host = 0.0
    if cpu_offload:
        for own in terms.values():
            host += sum(own.pop(name, 0.0) for name in ("weights", "gradients", "optimiser"))
    return Memory(terms, host)


def rollout_weights(model: ModelShape, tensor_parallel: int) -> float:
    """Bytes of an engine's weights on one device."""
    return 2 * model.parameters / tensor_parallel


def kv_per_rollout(load: RolloutLoad, tensor_parallel: int) -> float:
    """Bytes of KV cache that the longest rollout needs on one device."""
    return load.longest * load.model.kv_bytes_per_token / min(tensor_parallel, load.model.attention.cache_parts)


@dataclass(frozen=True, slots=True)
class _Split:
    """How the trainer's states lie on devices."""

    devices: int
    tensor_parallel: int

    def share(self, shape: ModelShape) -> float:
        """Parameters of a model on one device."""
        layers = shape.parameters - shape.embeddings
        return (layers + shape.embeddings * self.tensor_parallel) / self.devices


def _trained(shape: ModelShape, load: TrainLoad, split: _Split, lora_rank: int | None) -> dict[str, float]:
    tokens, parts = load.micro_tokens, split.tensor_parallel
    layer = 2 * tokens * shape.activation_numbers / parts
    inputs = 2 * tokens * shape.hidden * shape.layers
    share, weights = split.share(shape), 4 * split.share(shape)
    gathered = 4 * shape.embeddings + max(10 * shape.layer_parameters / parts, 4 * shape.embeddings)
    if lora_rank:
        share = lora_rank * shape.linear_numbers * shape.layers / split.devices
        weights = 2 * split.share(shape) + 4 * share
        gathered = 2 * shape.embeddings + 4 * shape.layer_parameters / parts
    if not load.is_resharded:
        gathered += 2 * (shape.parameters - shape.embeddings) / parts
    return {
        "weights": weights,
        "gradients": 4 * share,
        "optimiser": 8 * share,
        "gathered": gathered,
        "activations": inputs + layer if load.is_checkpointed else shape.layers * layer,
        "logits": 12 * min(tokens, load.logprob_chunk) * shape.vocabulary,
    }
