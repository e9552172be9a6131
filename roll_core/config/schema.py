"""The run configuration, typed. Every key a YAML file may hold is declared here or by a component's own config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from roll_core.config.algorithm import (
    AdaptiveKL,
    Aggregation,
    AlgorithmConfig,
    AlgorithmOverride,
    ComponentPatch,
    CorrectionConfig,
    KLConfig,
    OverlongConfig,
)
from roll_core.config.base import ComponentRef, NonNegative, NonNegativeInt, PositiveInt, Strict
from roll_core.config.cluster import ClusterConfig
from roll_core.config.faults import FaultsConfig
from roll_core.config.marks import OfKind
from roll_core.contracts import LoraSettings, OptimSettings
from roll_core.types import SamplingParams

__all__ = [
    "CRITIC_LR",
    "AdaptiveKL",
    "Aggregation",
    "AlgorithmConfig",
    "AlgorithmOverride",
    "BatchConfig",
    "CheckpointConfig",
    "Columns",
    "ComponentPatch",
    "ComponentRef",
    "CorrectionConfig",
    "CriticConfig",
    "DataConfig",
    "DomainConfig",
    "EvalConfig",
    "Example",
    "KLConfig",
    "ModelConfig",
    "NonNegative",
    "NonNegativeInt",
    "OverlongConfig",
    "PluginsConfig",
    "PositiveInt",
    "RewardRef",
    "RolloutConfig",
    "RunConfig",
    "SamplingConfig",
    "ScoringConfig",
    "Strict",
    "TrainConfig",
]

CRITIC_LR = 1e-5
"""Learning rate of a critic that names none."""


class RewardRef(ComponentRef):
    """A reward component and its weight in the sum."""

    weight: float = 1.0
    """Factor of its values in the sum."""


class Columns(Strict):
    """Which columns of a row hold what."""

    prompt: str = "prompt"
    """Text of the question, or a list of chat messages."""
    reference: str | None = "reference"
    """What the verifier compares with; null when a domain needs none."""
    id: str | None = None
    """A stable name of the row; null numbers the rows."""


class Example(Strict):
    """One worked example shown before the question."""

    user: str
    """The question as it would be asked."""
    assistant: str
    """The answer as it should be given."""


class DataConfig(ComponentRef):
    """A source of rows and how a row becomes a prompt. A bare path is short for `{path: ...}`."""

    use: Any = "dataset"
    """The source."""
    columns: Columns = Columns()
    """Which columns hold what."""
    template: str = "{prompt}"
    """Text of the user turn; `{prompt}` and any other column of the row may be named."""
    system: str | None = None
    """System message; null leaves the chat template's own."""
    examples: tuple[Example, ...] = ()
    """Worked examples, shown as earlier turns of the chat."""
    chat: bool = True
    """Render through the tokenizer's chat template; false continues the raw text."""
    shuffle: bool = True
    """Draw the rows in an order that depends on the run's seed."""
    repeat: bool = True
    """Start again (in a new order) when the rows are used up; false ends the domain."""
    limit: PositiveInt | None = None
    """Use only the first rows."""

    @classmethod
    def long_form(cls, value: Any) -> Any:
        """Write a path or a list of rows as a mapping."""
        if isinstance(value, str | Path):
            return {"path": str(value)}
        if isinstance(value, list | tuple):
            return {"use": "rows", "rows": list(value)}
        return super().long_form(value)


class SamplingConfig(Strict):
    """How the policy's tokens are drawn while training."""

    temperature: Annotated[float, Field(gt=0)] = 1.0
    """Divides the logits."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Keep the smallest set of tokens with this much probability; 1 keeps all."""
    top_k: NonNegativeInt = 0
    """0 keeps the whole vocabulary."""
    max_new_tokens: PositiveInt = 64
    """Longest answer in tokens; a longer one is cut and counts as truncated."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer, beside the model's own stop tokens."""

    def params(self, stop_token_ids: tuple[int, ...]) -> SamplingParams:
        """The sampling parameters with the tokenizer's stop tokens."""
        return SamplingParams(self.temperature, self.top_p, self.top_k, self.max_new_tokens, stop_token_ids, self.stop)


class CriticConfig(Strict):
    """The value model, loaded only when the advantage estimator reads `values`."""

    path: str | None = None
    """Model to start from; null takes the policy's."""
    optim: OptimSettings = OptimSettings(lr=CRITIC_LR)
    """The critic's own optimiser."""
    value_clip: NonNegative = 0.2
    """Range around the old values; 0 switches value clipping off."""

    @field_validator("optim", mode="before")
    @classmethod
    def _keep_default_lr(cls, value: Any) -> Any:
        return {"lr": CRITIC_LR, **value} if isinstance(value, Mapping) else value


class DomainConfig(Strict):
    """One kind of task: its data, its judge, its rewards."""

    data: Annotated[DataConfig, OfKind("sources", "dataset")]
    """Rows to train on."""
    eval_data: Annotated[DataConfig, OfKind("sources", "dataset")] | None = None
    """Held-out rows; columns, template, system, examples and chat are taken from `data` where not given."""
    verifier: Annotated[ComponentRef, OfKind("verifiers")]
    """Judges each response; its score is the raw task metric."""
    rewards: tuple[Annotated[RewardRef, OfKind("rewards")], ...] = (RewardRef(use="verdict"),)
    """Components whose weighted values add up to the reward."""
    sampling: SamplingConfig | None = None
    """Overrides of `rollout.sampling` (merged key by key)."""
    algorithm: AlgorithmOverride | None = None
    """Overrides of `algorithm` (merged key by key)."""
    weight: Annotated[float, Field(gt=0)] = 1.0
    """Weight of this domain's terms in the objective."""


class ModelConfig(Strict):
    """The policy."""

    path: str
    """A Hugging Face folder, or the name of an installed `models` component."""
    lora: LoraSettings | None = None
    """Train low-rank adapters; null trains every weight."""
    reference: str | None = None
    """Reference model for KL; null takes the policy's start."""


class BatchConfig(Strict):
    """Sizes of a step. `roll config explain` prints what follows from them."""

    prompts: PositiveInt = 8
    """Admitted groups a step."""
    group_size: PositiveInt = 8
    """Rollouts of one prompt (G)."""
    mini_batches: PositiveInt = 1
    """Optimiser steps per pass over the batch; groups are divided evenly."""
    epochs: PositiveInt = 1
    """Passes over the batch."""
    max_prompt_tokens: PositiveInt = 512
    """Longer prompts are left out of their domain and counted."""


class RolloutConfig(Strict):
    """Generation."""

    backend: Annotated[ComponentRef, OfKind("rollout_backends", "local")] = ComponentRef(use="local")
    """The engine that generates."""
    sampling: SamplingConfig = SamplingConfig()
    """How tokens are drawn, in every domain that says nothing else."""
    mode: Literal["sync", "one_step", "async"] = "sync"
    """`sync` rolls out, then trains. `one_step` rolls out the next batch, with the weights of now, while this one is
    trained. `async` never waits: weights change under running rollouts, within `max_staleness`."""
    max_staleness: PositiveInt = 1
    """In `async` mode: how many versions the weights that a group was started with may be behind those it trains."""
    on_stale: Literal["wait", "drop", "correct"] = "wait"
    """In `async` mode, when a group at the bound is not finished: `wait` for it; `drop` it and start another, which
    makes long answers rarer; or train it later, beyond the bound, and `correct` it by the algorithm's importance
    weights."""
    max_draws: PositiveInt = 8
    """A step ends with an error after drawing `max_draws * batch.prompts` prompts without filling its batch."""
    early_stop: bool = False
    """Stop a group's running samples as soon as no outcome of theirs could get it through the filters. Verdicts are
    then awaited between decode steps, so that the stop does not depend on the clock."""


class ScoringConfig(Strict):
    """The pool of verifier processes."""

    workers: NonNegativeInt = 2
    """Worker processes (of each host, where there are hosts); 0 verifies inside the driver, without a deadline that can
    be enforced."""
    hosts: NonNegativeInt = 0
    """Processes of the executor that hold a pool of workers each, on Ray on any machine with room; a lost one is
    replaced. 0 keeps one pool beside the driver."""
    host_cpus: Annotated[float, Field(ge=0)] | None = None
    """Processor cores that a host reserves; null takes one for each of its workers."""
    timeout_s: Annotated[float, Field(gt=0)] = 10.0
    """Hard deadline of one verdict; the worker is killed and replaced. A verifier that may honestly take longer (code,
    judges) says so itself."""
    alarm_rate: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Warn when more than this share of a step's rollouts stays without a score."""


class TrainConfig(Strict):
    """Training engine and optimiser."""

    strategy: Annotated[ComponentRef, OfKind("train_strategies", "local")] = ComponentRef(use="local")
    """The engine that trains."""
    optim: OptimSettings = OptimSettings()
    """The policy's optimiser."""


class EvalConfig(Strict):
    """Held-out evaluation inside training."""

    every: NonNegativeInt = 0
    """Steps between evaluations; 0 leaves only start and end."""
    at_start: bool = True
    """Evaluate before the first step."""
    at_end: bool = True
    """Evaluate after the last step."""
    samples: PositiveInt = 1
    """Sampled answers per prompt."""
    limit: PositiveInt | None = None
    """Prompts per domain; null takes all."""
    greedy: bool = True
    """Also decode greedily."""


class CheckpointConfig(Strict):
    """Full-state checkpoints under `<folder>/checkpoints`."""

    every: NonNegativeInt = 20
    """Steps between checkpoints; 0 writes only the last."""
    keep: PositiveInt = 2
    """How many of the newest stay on disk."""
    at_end: bool = True
    """Also write one after the last step."""
    on_error: Literal["stop", "continue"] = "stop"
    """What a failed write means (full disk, read-only folder): `stop` ends the run with the reason, `continue` says it
    and tries again at the next one. The last checkpoint of a run may never fail."""


class PluginsConfig(Strict):
    """Which plugins may take part."""

    blocked: tuple[str, ...] = ()
    """Plugins (or distributions) that are not loaded."""
    required: tuple[str, ...] = ()
    """Plugins the run cannot be without."""
    rollfile: str | None = None
    """A Python file that is loaded as a plugin."""


class RunConfig(Strict):
    """One run."""

    name: str = "run"
    """Name of the run; also of its folder."""
    folder: str | None = None
    """Where the run is kept; null means `runs/<name>`."""
    seed: NonNegativeInt = 0
    """Key of every random stream."""
    steps: PositiveInt = 100
    """Steps to train; a step is draw, roll out, score, credit, update, sync."""
    strict: bool = False
    """Raise where an observer (tracker, hook) fails instead of logging and counting."""
    model: ModelConfig
    """The policy."""
    domains: Annotated[dict[str, DomainConfig], Field(min_length=1)]
    """The kinds of task, by a name of your choice."""
    mixer: Annotated[ComponentRef, OfKind("mixers", "ratio")] = ComponentRef(use="ratio")
    """Chooses the domain of each prompt."""
    algorithm: AlgorithmConfig = AlgorithmConfig()
    """How rewards become an update."""
    critic: CriticConfig = CriticConfig()
    """The value model, for estimators that read values."""
    filters: tuple[Annotated[ComponentRef, OfKind("filters")], ...] = ()
    """Which finished groups are trained on, in written order (dynamic sampling)."""
    batch: BatchConfig = BatchConfig()
    """Sizes of a step."""
    rollout: RolloutConfig = RolloutConfig()
    """Generation."""
    scoring: ScoringConfig = ScoringConfig()
    """Verifier processes."""
    train: TrainConfig = TrainConfig()
    """Training engine and optimiser."""
    cluster: ClusterConfig = ClusterConfig()
    """Where the processes of the run are, and what `roll plan` plans for."""
    faults: FaultsConfig = FaultsConfig()
    """What the run does by itself when it loses a process, or nothing moves any more."""
    eval: EvalConfig = EvalConfig()
    """Held-out evaluation inside training."""
    checkpoint: CheckpointConfig = CheckpointConfig()
    """Full-state checkpoints."""
    trackers: tuple[Annotated[ComponentRef, OfKind("trackers")], ...] = (
        ComponentRef(use="console"),
        ComponentRef(use="jsonl"),
        ComponentRef(use="parquet"),
    )
    """Where metrics and rollouts go; several at once."""
    plugins: PluginsConfig = PluginsConfig()
    """Which plugins may take part."""

    @field_validator("name")
    @classmethod
    def _name_is_folder(cls, value: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.-]*", value):
            raise ValueError("must be made of letters, digits, '_', '-' and '.', since it names the run's folder")
        return value

    @field_validator("domains")
    @classmethod
    def _domains_are_names(cls, value: dict[str, DomainConfig]) -> dict[str, DomainConfig]:
        wrong = [name for name in value if not re.fullmatch(r"[A-Za-z0-9_-]+", name)]
        if wrong:
            raise ValueError(
                f"domain names are made of letters, digits, '_' and '-', got {', '.join(map(repr, wrong))}"
            )
        return value

    @property
    def run_folder(self) -> Path:
        """Where the run is kept."""
        return Path(self.folder) if self.folder else Path("runs") / self.name
