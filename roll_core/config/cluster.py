"""The `cluster` section: which devices a run has, and who gets which."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from roll_core.config.base import PositiveInt, Strict

Seconds = Annotated[float, Field(gt=0)]


class TrainPlacement(Strict):
    """What the trainer wishes. Reference and critic live in its processes."""

    gpus: PositiveInt | None = None
    """Devices, one process each; null takes the strategy's `world_size`, else lets the solver choose."""
    tensor_parallel: PositiveInt | None = None
    """Devices that share every layer; must divide the attention heads, and lie on one machine. Null takes the
    strategy's option of that name, else 1."""
    cpu_offload: bool | None = None
    """Keep master weights, gradients and optimiser in the machine's memory; null takes the strategy's option of that
    name."""


class RolloutPlacement(Strict):
    """What generation wishes."""

    replicas: PositiveInt | None = None
    """Engines; null takes the backend's `replicas`, else as many as there are devices for."""
    tensor_parallel: PositiveInt | None = None
    """Devices of one engine, on one machine; null takes the backend's option of that name, else the fewest that hold
    the model and a group's KV cache."""


class ClusterConfig(Strict):
    """Where the processes of a run are.

    Devices are shared out before anything is loaded, as `roll plan` prints it: a strategy or backend with processes of
    its own starts one for each of its seats there. Without devices (CPU) it starts as many as its options say.
    """

    executor: Literal["driver", "local", "ray"] = "driver"
    """`driver` keeps everything in one process, `local` starts child processes, `ray` uses a Ray cluster."""
    address: str | None = None
    """Of a running Ray cluster ("auto", "host:port"); null starts one on this machine."""
    gpus: str | None = None
    """Devices, `16x80GB`, or machine by machine, `2x24GB + 8x80GB`; `none` plans for none (CPU). Null takes what is
    found: the NVIDIA devices of this machine, or of the Ray cluster."""
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
