"""The options of the strategy, as the config names them, and the mesh they describe."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, Self

import pydantic
from pydantic import Field

from roll_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Mesh:
    """How ranks are laid out. Neighbours split matrices, then share a copy of the model, then hold further copies."""

    replicate: int
    """Copies of the sharded model."""
    shard: int
    """Ranks that one copy is sharded over."""
    tensor: int
    """Ranks that split matrices among them."""

    @property
    def size(self) -> int:
        """All ranks."""
        return self.replicate * self.shard * self.tensor

    @property
    def data_parallel(self) -> int:
        """Parts that the segments of a batch are shared out in."""
        return self.replicate * self.shard


class FsdpOptions(pydantic.BaseModel):
    """How many ranks train, how the model is laid out over them, and what they may wait for."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    world_size: Annotated[int, Field(ge=1)] | None = None
    """Processes that train together; on GPUs one a device. null takes one for each device that the placement gives to
    training; with `cluster.executor: driver` one for each device this machine shows; without devices one."""
    replicate: Annotated[int, Field(ge=1)] = 1
    """Copies of the sharded model (hybrid sharding): each is sharded over world_size / replicate / tensor_parallel
    ranks, gradients are summed over the copies. Neighbouring ranks share a copy, so that sharding stays in a node."""
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """Neighbouring ranks that split every layer's matrices among them, by the model's plan in transformers."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where ranks compute; `auto` takes GPUs where the placement gives some or the driver sees one. Name it where
    neither is so."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Format that parameters are gathered and computed in; masters and optimiser are float32 always. `auto` takes
    bfloat16 where the device multiplies in it natively."""
    reduce_precision: Literal["float32", "bfloat16"] = "float32"
    """Format that gradients are summed over ranks in."""
    micro_tokens: Annotated[int, Field(ge=1)] = 4096
    """Most tokens a rank computes at once, prompts counted once where they are shared."""
    layout: Literal["auto", "shared_prompt", "padded"] = "auto"
    """`shared_prompt` computes the prompt of a group once; `padded` lays one segment on a row; `auto` shares where the
    model allows it."""
    gradient_checkpointing: bool = False
    """Keep only layer inputs for the backward pass; slower, and needs less memory."""
    reshard_after_forward: bool = True
    """Free the gathered parameters of a layer between forward and backward; off is faster and needs more memory."""
    cpu_offload: bool = False
    """Keep shards, gradients and optimiser in host memory; for GPUs whose memory is too small."""
    logprob_chunk: Annotated[int, Field(ge=1)] = 2048
    """Most rows of logits that exist at once on a rank."""
    cpus_per_rank: Annotated[float, Field(gt=0)] = 1.0
    """Processor cores of one rank."""
    start_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """Bound on starting ranks with their models, and on saving, loading and exporting."""
    step_timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    """Bound on the forward passes of a batch, on an update, and on each piece of published weights."""
    collective_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """How long a rank waits for the others inside one exchange before it gives up."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        if self.world_size is not None:
            self.mesh(self.world_size)
        if self.cpu_offload and self.device == "cpu":
            raise ValueError("cpu_offload moves what is not computed off a GPU; with device: cpu it does nothing")
        return self

    def mesh(self, ranks: int) -> Mesh:
        """The layout of so many ranks.

        Raises:
            ConfigError: they cannot be laid out.
        """
        shard, rest = divmod(ranks, self.replicate * self.tensor_parallel)
        if rest:
            raise ConfigError(
                f"world_size {ranks} is no multiple of replicate {self.replicate} x tensor_parallel "
                f"{self.tensor_parallel}"
            )
        return Mesh(self.replicate, shard, self.tensor_parallel)
