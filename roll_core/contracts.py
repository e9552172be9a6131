"""One protocol per kind of component, and the small types that only cross these protocols.

A component is anything that fits its protocol; nothing here needs to be subclassed. Factories receive their config
values as plain keyword arguments. Optional attributes are read through `roll_core.plugin.component` helpers:

* `requirements() -> frozenset[str]` on the built object names the columns it reads under *this* config: `values`,
  `ref_logprobs`, `old_logprobs`, `greedy_rewards`, `entropy`, `logprobs@<model>`. `rollout_logprobs` are always there.
* `state_dict() / load_state_dict(state)` (JSON-able) on anything that must survive a restart. State changes only
  when a step commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from roll_core.objective import LossInputs, MiniBatch, Term
from roll_core.settings import LoraSettings, OptimSettings, TrainSetup
from roll_core.types import (
    AdvantageInputs,
    Advantages,
    AnyArray,
    Batch,
    Completion,
    FloatArray,
    GenerateRequest,
    Prompt,
    Rollout,
    RolloutGroup,
    Verdict,
)

if TYPE_CHECKING:
    from torch import Tensor

__all__ = [
    "CONTEXT",
    "KINDS",
    "AdvantageEstimator",
    "EarlyFilter",
    "Environment",
    "Filter",
    "LoraSettings",
    "LossInputs",
    "MiniBatch",
    "Mixer",
    "ModelResolver",
    "OptimSettings",
    "PolicyLoss",
    "RewardFunction",
    "RolloutBackend",
    "RunInfo",
    "Source",
    "StepResult",
    "TensorInfo",
    "Term",
    "Tracker",
    "TrainSetup",
    "TrainStrategy",
    "Verifier",
    "WeightSource",
    "column",
    "requirements_of",
]

KINDS: tuple[str, ...] = (
    "verifiers",
    "rewards",
    "filters",
    "mixers",
    "sources",
    "environments",
    "advantages",
    "policy_losses",
    "rollout_backends",
    "train_strategies",
    "trackers",
    "models",
    "commands",
)
"""Every kind of component, by the plural that names its hook `roll_register_<kind>`."""


CONTEXT: dict[str, tuple[str, ...]] = {
    "mixers": ("domains", "sizes", "seed", "total_steps"),
    "rollout_backends": ("model", "seed", "executor"),
    "train_strategies": ("setup", "executor"),
    "models": ("cache",),
}
"""Keyword arguments the engine passes to every factory of a kind, beside the options of the config.

`domains: Sequence[str]`, `sizes: Mapping[str, int]` (rows per domain), `seed: int`, `total_steps: int`;
`model: Path` (Hugging Face folder); `executor: cluster.Executor | None` (starts worker processes; None where the run
keeps to one process); `setup: TrainSetup`; `cache: Path` (where prepared models are kept).
"""


# --- scoring ----------------------------------------------------------------------------------------------------------


@runtime_checkable
class Verifier(Protocol):
    """Judges one response against a reference. Sync or async. Must be picklable when it is to run in the pool.

    Never raises on text; what the policy does is scored, what the machinery does is not (see `Status`).

    Optional: `prepare()` gets ready what a first verdict would wait for (a model, a jail), once per process and before
    the run; what it raises stops the run. `close()` lets go of it. Both async when `verify` is. `deadline_s` (seconds,
    or None) says how long one verdict may honestly take, where that can be more than the caller's own deadline: a
    verdict that is cut off has no score, and a policy must not be able to bring that about.
    """

    def verify(
        self,
        response: str,
        reference: Any,
        *,
        prompt: Prompt | None = None,
        rollout: Rollout | None = None,
        **options: Any,
    ) -> Verdict | Awaitable[Verdict]: ...


@runtime_checkable
class RewardFunction(Protocol):
    """Turns a group of scored rollouts into one value each; None leaves that rollout without this component.

    Must not change its input, and permuting the group permutes the result.
    """

    def __call__(self, group: RolloutGroup) -> Sequence[float | None]: ...


@runtime_checkable
class Filter(Protocol):
    """Admits or drops a finished group, on the raw task metric (`Rollout.score`)."""

    def reject(self, group: RolloutGroup) -> str | None:
        """Return a short reason to drop the group, or None to admit it."""
        ...


@runtime_checkable
class EarlyFilter(Filter, Protocol):
    """A filter that can tell before the group is finished."""

    def hopeless(self, scores: Sequence[float | None], missing: int) -> str | None:
        """Return a reason when no outcome of the `missing` rollouts could make the group pass, else None.

        Args:
            scores: scores of the finished rollouts (None where the machinery failed).
            missing: how many rollouts are still running.
        """
        ...


# --- data -------------------------------------------------------------------------------------------------------------


@runtime_checkable
class Source(Protocol):
    """A finite, indexable set of rows (mappings with at least a prompt and, usually, a reference)."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Mapping[str, Any]: ...


@runtime_checkable
class Mixer(Protocol):
    """Decides which domain each prompt of a step comes from. Deterministic given its state."""

    def weights(self, step: int) -> dict[str, float]:
        """Target share of each domain at `step`; non-negative, sums to 1."""
        ...

    def draw(self, count: int, *, step: int, available: Sequence[str]) -> list[str]:
        """Name the domain of each of the next `count` prompts, among `available` ones (others have ended)."""
        ...

    def observe(self, groups: Sequence[RolloutGroup]) -> None:
        """See the outcomes of a committed step."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


# --- environments -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an environment answers to an action."""

    observation: str
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)


@runtime_checkable
class Environment(Protocol):
    """Single-use: created for one episode from (seed, task)."""

    def start(self) -> str | Awaitable[str]: ...

    def step(self, action: str) -> StepResult | Awaitable[StepResult]: ...

    def close(self) -> Awaitable[None] | None: ...


# --- algorithms -------------------------------------------------------------------------------------------------------


@runtime_checkable
class AdvantageEstimator(Protocol):
    """Credit for every sampled token. Returns [N]: 0 where `response_mask` is False."""

    def __call__(self, inputs: AdvantageInputs) -> Advantages | FloatArray: ...


@runtime_checkable
class PolicyLoss(Protocol):
    """Per-token loss values [n] to be minimised; aggregation is not its business."""

    def __call__(self, inputs: LossInputs) -> Tensor: ...


# --- engines ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a weight manifest: canonical (Hugging Face) name, dtype, global shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@runtime_checkable
class WeightSource(Protocol):
    """Publishes weights under canonical Hugging Face names, buffers that matter included."""

    def manifest(self) -> Sequence[TensorInfo]: ...

    def tensors(self) -> Iterator[tuple[str, Tensor]]: ...


@runtime_checkable
class RolloutBackend(Protocol):
    """Generates tokens for many concurrent requests (continuous batching inside).

    Cancelling the task of a `generate` call, or `abort(request_id)`, frees its slot; `abort` makes the call return
    the tokens made so far with finish reason "abort".
    """

    @property
    def policy_version(self) -> int: ...

    async def generate(self, request: GenerateRequest) -> Completion: ...

    def abort(self, request_id: str) -> None: ...

    def sync_weights(self, source: WeightSource, version: int) -> None:
        """Take over all weights of `source` as one transaction; from then on tokens carry `version`."""
        ...

    def set_barrier(self, barrier: Callable[[], Awaitable[None]] | None) -> None:
        """Await `barrier()` between decode steps after a request finished, so that early stops are deterministic."""
        ...

    async def close(self) -> None: ...


@runtime_checkable
class TrainStrategy(Protocol):
    """Owns forward, backward and the optimiser."""

    def compute(self, batch: Batch, columns: frozenset[str]) -> dict[str, FloatArray]:
        """Forward passes without gradient.

        Token columns [N] out of `old_logprobs`, `ref_logprobs`, `values`, `entropy`, `logprobs@<model>`.
        """
        ...

    def update(self, batch: Batch, mini_batches: Sequence[MiniBatch]) -> dict[str, float]:
        """One optimiser step per mini-batch; returns metrics (means over counted tokens, norms, rates)."""
        ...

    def weight_source(self) -> WeightSource: ...

    def save(self, folder: Path) -> None:
        """Write weights (or adapter), optimiser, schedule and random states into an existing, empty folder."""
        ...

    def load(self, folder: Path) -> None: ...

    def export(self, folder: Path) -> None:
        """Write a Hugging Face model folder (adapters merged, tokenizer included)."""
        ...

    def close(self) -> None: ...


# --- observers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RunInfo:
    """What a tracker is told about the run it follows."""

    run_id: str
    name: str
    folder: Path
    config: Mapping[str, Any]
    plugins: Mapping[str, str]
    resumed_from: int | None = None
    total_steps: int = 0


@runtime_checkable
class Tracker(Protocol):
    """Receives metrics. Survives NaN, steps out of order and a second `finish`."""

    def start(self, run: RunInfo) -> None: ...

    def log(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def log_rollouts(self, step: int, groups: Sequence[RolloutGroup]) -> None: ...

    def finish(self, status: str) -> None:
        """`status` is "finished", "failed" or "interrupted"."""
        ...


@runtime_checkable
class ModelResolver(Protocol):
    """Turns a model name into a local folder in Hugging Face format, preparing it when needed."""

    def resolve(self, name: str) -> Path: ...


def requirements_of(component: Any) -> frozenset[str]:
    """Columns a built component reads under its config; an object without `requirements` reads none."""
    ask = getattr(component, "requirements", None)
    names: Iterable[str] = ask() if callable(ask) else ()
    return frozenset(names)


def column(batch: Batch, name: str) -> AnyArray:
    """A declared column of `batch`.

    Raises:
        KeyError: nothing computed it; the message names the column and those present.
    """
    if name not in batch.columns:
        raise KeyError(f"column '{name}' was not computed; present: {', '.join(sorted(batch.columns)) or 'none'}")
    return batch.columns[name]
