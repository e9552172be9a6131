"""The `cluster` section: which devices a run has, and who gets which."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roll_core.config.base import PositiveInt, Strict

Seconds = Annotated[float, Field(gt=0)]


class TrainPlacement(Strict):
    """What the trainer wishes. Reference and critic live in its processes."""

    gpus: PositiveInt | None = None
    """Devices, one process each; null lets the solver choose."""
    tensor_parallel: PositiveInt = 1
    """Devices that share every layer; must divide the attention heads, and lie on one machine."""
    cpu_offload: bool = False
    """Keep master weights, gradients and optimiser in the machine's memory."""


class RolloutPlacement(Strict):
    """What generation wishes."""

    replicas: PositiveInt | None = None
    """Engines; null takes as many as there are devices for."""
    tensor_parallel: PositiveInt | None = None
    """Devices of one engine, on one machine; null takes the fewest that hold the model and a group's KV cache."""


class ClusterConfig(Strict):
    """Where the processes of a run are.

    What is said about devices is what `roll plan` plans for; components that have processes of their own say in their
    own options how many.
    """

    executor: Literal["driver", "local", "ray"] = "driver"
    """`driver` keeps everything in one process, `local` starts child processes, `ray` uses a Ray cluster."""
    address: str | None = None
    """Of a running Ray cluster ("auto", "host:port"); null starts one on this machine."""
    gpus: str | None = None
    """Devices, `16x80GB`, or machine by machine, `2x24GB + 8x80GB`; null plans for none (CPU)."""
    gpus_per_node: PositiveInt = 8
    """Devices of one machine: `16x80GB` means two machines of eight."""
    layout: Literal["auto", "colocate", "apart"] = "auto"
    """`colocate` lets training and generation take turns on the same devices, `apart` gives each its own; `auto`
    colocates where that fits."""
    offload: bool = True
    """When colocated, whoever's turn it is not leaves the device; false keeps both on it."""
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a device's memory that may be planned for; the rest is for fragmentation."""
    train: TrainPlacement = TrainPlacement()
    """Wishes of the trainer."""
    rollout: RolloutPlacement = RolloutPlacement()
    """Wishes of generation."""
    map: dict[Literal["train", "rollout"], tuple[str, ...]] | None = None
    """A placement by hand instead of a solved one: for each role its processes, `machine:devices` each, for instance
    `{train: ["0:0", "0:1"], rollout: ["0:2-3"]}`."""
    placement_timeout_s: Seconds = 60.0
    """Longest wait for room in the cluster."""
