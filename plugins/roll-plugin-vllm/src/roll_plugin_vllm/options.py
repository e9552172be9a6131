"""The options of the backend, as the config names them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
from pydantic import Field


class VllmOptions(pydantic.BaseModel):
    """How many engines there are, what each of them holds, and what may be waited for."""

    model_config = pydantic.ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    replicas: Annotated[int, Field(ge=1)] = 1
    """Engines that serve in parallel. A single one runs in this process unless the run has an executor."""
    tensor_parallel: Annotated[int, Field(ge=1)] = 1
    """Devices one replica spans."""
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
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a device's memory that vLLM takes."""
    kv_cache_gb: Annotated[float | None, Field(gt=0)] = None
    """Memory for keys and values in GiB; null lets vLLM take what is free. Name it on CPUs."""
    max_kept: Annotated[int, Field(ge=1, le=8192)] = 256
    """Where top_p cuts the distribution without top_k, tokens are drawn from this many candidates at most, so that the
    kept set that goes to the trainer is bounded and exact."""
    max_lora_rank: Annotated[int, Field(ge=0)] = 0
    """Largest rank of adapters; 0 serves none. Needed where only the adapter is synced, and for `adapters`."""
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
    def _check_adapters(self) -> VllmOptions:
        if self.adapters and not self.max_lora_rank:
            raise ValueError("adapters need max_lora_rank, the largest rank among them")
        return self
