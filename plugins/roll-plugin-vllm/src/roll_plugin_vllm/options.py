"""The options of the backend, as the config names them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import pydantic
from pydantic import Field

from roll_core.cluster import Seat
from roll_core.errors import ConfigError

_OWN_ARGS = frozenset(
    {"model", "dtype", "tensor_parallel_size", "max_model_len", "max_num_seqs", "enable_prefix_caching"}
    | {"enforce_eager", "gpu_memory_utilization", "kv_cache_memory_bytes", "enable_lora", "max_lora_rank", "max_loras"}
    | {"enable_sleep_mode", "max_logprobs", "logprobs_mode", "skip_tokenizer_init", "weight_transfer_config"}
    | {"worker_extension_cls", "distributed_executor_backend"}
)
"""Arguments of vLLM's that follow from this plugin's options, or that it relies on."""
_MEMORY = 0.9


class VllmOptions(pydantic.BaseModel):
    """How many engines there are, what each of them holds, and what may be waited for."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    replicas: Annotated[int | None, Field(ge=1)] = None
    """Engines that serve in parallel; null takes the seats of `rollout` in the run's placement, 1 without one."""
    tensor_parallel: Annotated[int | None, Field(ge=1)] = None
    """Devices one replica spans; null takes those of a seat, 1 without a placement."""
    transfer: Literal["auto", "shared_memory", "gloo", "nccl", "ipc"] = "auto"
    """How new weights reach the replicas. `shared_memory`: through the machine's memory, sent to other machines by the
    executor; checked everywhere before any replica takes them over. `gloo`: broadcast over TCP. `nccl`: from the
    trainer's devices to others. `ipc`: on the device that trainer and replica share. `auto` takes `ipc` or `nccl` where
    the devices allow it, else `shared_memory`."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Format of weights and keys and values; `auto` is vLLM's choice for the model."""
    max_model_len: Annotated[int | None, Field(ge=1)] = None
    """Longest sequence in tokens, prompt included; null takes the model's."""
    max_num_seqs: Annotated[int, Field(ge=1)] = 64
    """Requests a replica decodes together; more wait."""
    prefix_caching: bool = True
    """Compute the prompt of a group once."""
    eager: bool | None = None
    """Run the model without compilation; null compiles on GPUs only."""
    memory_fraction: Annotated[float | None, Field(gt=0, le=1)] = None
    """Share of a device's memory that vLLM takes; null takes what the placement gives a seat, 0.9 without one."""
    kv_cache_gb: Annotated[float | None, Field(gt=0)] = None
    """Memory for keys and values in GiB; null lets vLLM take what is free. Name it on CPUs."""
    max_kept: Annotated[int, Field(ge=1, le=8192)] = 256
    """Where top_p cuts the distribution without top_k, tokens are drawn from this many candidates at most, so that the
    kept set that goes to the trainer is bounded and exact."""
    max_lora_rank: Literal[0, 1, 8, 16, 32, 64, 128, 256, 320, 512] = 0
    """Largest rank of adapters, as vLLM counts them; 0 serves none. Needed where only the adapter is synced, and for
    `adapters`."""
    adapters: dict[str, Path] = Field(default_factory=dict)
    """Fixed adapters by name (folders in PEFT format), for requests that ask for one."""
    sleep_mode: bool = False
    """Let replicas give their device memory up between phases (`sleep`, `wake_up`). GPUs only."""
    cpus_per_replica: Annotated[float, Field(gt=0)] = 1.0
    """Processor cores of one replica; on CPU builds also its threads."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """Failures of one replica in a row, without a token in between, after which it is given up."""
    start_timeout_s: Annotated[float, Field(gt=0)] = 900.0
    """Bound on starting a replica."""
    sync_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    """Bound on each phase of a weight update."""
    answer_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    """A replica that says nothing for this long is taken for dead and replaced."""
    engine_args: dict[str, Any] = Field(default_factory=dict)
    """Further arguments of vLLM's engine, by vLLM's names; what this plugin sets itself cannot be given here."""

    @pydantic.model_validator(mode="after")
    def _check(self) -> Self:
        taken = _OWN_ARGS & self.engine_args.keys()
        if taken:
            raise ValueError(
                f"engine_args sets {', '.join(sorted(taken))}, which have options of their own or are fixed"
            )
        if self.adapters and not self.max_lora_rank:
            raise ValueError("adapters need max_lora_rank, the largest rank among them")
        return self

    @property
    def count(self) -> int:
        """Replicas, where no placement says how many."""
        return self.replicas or 1

    @property
    def span(self) -> int:
        """Devices of a replica, where no placement says how many."""
        return self.tensor_parallel or 1

    @property
    def fraction(self) -> float:
        """Share of a device's memory, where no placement says how much."""
        return self.memory_fraction or _MEMORY

    def seated(self, seats: tuple[Seat, ...] | None) -> Self:
        """The options, with what they leave open filled in from the seats that a placement gives the replicas.

        Raises:
            ConfigError: options and placement contradict each other.
        """
        if seats is None:
            return self
        spans = sorted({len(seat.devices) for seat in seats})
        found: dict[str, float] = {"replicas": len(seats), "tensor_parallel": spans[0]}
        if len(spans) > 1:
            raise ConfigError(
                f"the placement gives replicas of vLLM {spans} devices each; all must span the same number"
            )
        for name, planned in found.items():
            written = getattr(self, name)
            if written not in (None, planned):
                raise ConfigError(
                    f"rollout.backend.{name} is {written}, the placement has {planned} (cluster.rollout, cluster.map); "
                    "leave one of them out"
                )
        shares = [seat.memory_share for seat in seats if seat.memory_share is not None]
        if shares and self.memory_fraction is None:
            found["memory_fraction"] = min(shares)
        return self.model_copy(update=found)
