"""The run configuration, typed. Every key a YAML file may hold is declared here or by a component's own config."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from roll_core.config.marks import OfKind
from roll_core.contracts import LoraSettings, OptimSettings
from roll_core.types import SamplingParams

PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]
CRITIC_LR = 1e-5
"""Learning rate of a critic that names none."""
Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr_grpo"]


class Strict(BaseModel):
    """Unknown keys are errors; the text under a field documents it."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
    )


class ComponentRef(Strict):
    """A component by name with its options, `{use: grpo, eps: 1e-4}`; a bare name is short for `{use: name}`.

    From Python, `use` may be the object or function itself. Where the field has a default component, a mapping without
    `use` gives options to that one.
    """

    model_config = ConfigDict(extra="allow")

    use: Any
    """Name of the component (`owner/name` when two plugins offer it), or the object itself."""

    @classmethod
    def long_form(cls, value: Any) -> Any:
        """Write the short form of a reference as a mapping; a mapping (or null) comes back as it is."""
        return value if value is None or isinstance(value, Mapping) else {"use": value}

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, value: Any) -> Any:
        if isinstance(value, cls):
            return value
        if isinstance(value, ComponentRef):
            return {name: getattr(value, name) for name in value.model_fields_set}
        return cls.long_form(value)

    @field_validator("use")
    @classmethod
    def _use_is_component(cls, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float | bytes | list | tuple | dict | set):
            raise ValueError("must be the name of a component, or from Python the object itself")
        if isinstance(value, str) and not value.strip():
            raise ValueError("names no component")
        return value

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the declared fields: the component's own options."""
        return dict(self.model_extra or {})


class RewardRef(ComponentRef):
    """A reward component and its weight in the sum."""

    weight: float = 1.0


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
    assistant: str


class DataConfig(ComponentRef):
    """A source of rows and how a row becomes a prompt. A bare path is short for `{path: ...}`."""

    use: Any = "dataset"
    columns: Columns = Columns()
    template: str = "{prompt}"
    """Text of the user turn; `{prompt}` and any other column of the row may be named."""
    system: str | None = None
    """System message; null leaves the chat template's own."""
    examples: tuple[Example, ...] = ()
    chat: bool = True
    """Render through the tokenizer's chat template; false continues the raw text."""
    shuffle: bool = True
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
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    top_k: NonNegativeInt = 0
    """0 keeps the whole vocabulary."""
    max_new_tokens: PositiveInt = 64
    stop: tuple[str, ...] = ()

    def params(self, stop_token_ids: tuple[int, ...]) -> SamplingParams:
        """The sampling parameters with the tokenizer's stop tokens."""
        return SamplingParams(self.temperature, self.top_p, self.top_k, self.max_new_tokens, stop_token_ids, self.stop)


class AdaptiveKL(Strict):
    """coef *= 1 + clip(kl / target - 1, -0.2, 0.2) * rollouts / horizon (Ziegler et al. 2019, arXiv:1909.08593)."""

    target: Annotated[float, Field(gt=0)]
    horizon: Annotated[float, Field(gt=0)] = 10_000.0


class KLConfig(Strict):
    """Divergence from the reference model. With `coef: 0` no reference is loaded."""

    coef: NonNegative = 0.0
    where: Literal["loss", "reward"] = "loss"
    estimator: Literal["k1", "k2", "k3", "unbiased"] = "unbiased"
    """k1, k2, k3 as Schulman names them; `unbiased` is w * k3 with w = pi / sg[pi] (in a reward: k1)."""
    adaptive: AdaptiveKL | None = None


class CorrectionConfig(Strict):
    """Weights for the gap between trainer and sampler, w = exp(old_logprobs - rollout_logprobs), detached."""

    kind: Literal["none", "token_tis", "token_mask", "seq_tis", "seq_mask", "geo_mask"] = "none"
    low: NonNegative = 0.0
    """Lower bound (masks only)."""
    high: Annotated[float, Field(gt=0)] = 2.0


class OverlongConfig(Strict):
    """Answers that hit the length limit: DAPO's soft penalty (arXiv:2503.14476), or out of the loss."""

    buffer: NonNegativeInt = 0
    """The penalty grows linearly over the last `buffer` tokens before `max_new_tokens`; 0 switches it off."""
    penalty: NonNegative = 1.0
    mask: bool = False
    """Leave truncated answers out of the loss (they stay in the group's statistics)."""


class CriticConfig(Strict):
    """The value model, loaded only when the advantage estimator reads `values`."""

    path: str | None = None
    """Model to start from; null takes the policy's."""
    optim: OptimSettings = OptimSettings(lr=CRITIC_LR)
    value_clip: NonNegative = 0.2
    """Range around the old values; 0 switches value clipping off."""

    @field_validator("optim", mode="before")
    @classmethod
    def _keep_default_lr(cls, value: Any) -> Any:
        return {"lr": CRITIC_LR, **value} if isinstance(value, Mapping) else value


class AlgorithmConfig(Strict):
    """Any advantage estimator with any loss."""

    advantage: Annotated[ComponentRef, OfKind("advantages", "grpo")] = ComponentRef(use="grpo")
    loss: Annotated[ComponentRef, OfKind("policy_losses", "ppo_clip")] = ComponentRef(use="ppo_clip")
    agg: Aggregation = "token-mean"
    agg_length: PositiveInt | None = None
    """The constant length of `agg: dr_grpo`; null takes `max_new_tokens`."""
    kl: KLConfig = KLConfig()
    entropy_coef: float = 0.0
    correction: CorrectionConfig = CorrectionConfig()
    overlong: OverlongConfig = OverlongConfig()


class ComponentPatch(ComponentRef):
    """Options for an inherited component, or with `use` another component in its place."""

    use: Any = None
    """Null keeps the inherited component; naming another one drops the inherited options."""

    @field_validator("use")
    @classmethod
    def _use_is_component(cls, value: Any) -> Any:
        return None if value is None else ComponentRef(use=value).use


class AlgorithmOverride(AlgorithmConfig):
    """What a domain does differently; every key that is not set is inherited from `algorithm`."""

    advantage: Annotated[ComponentPatch, OfKind("advantages")] = ComponentPatch()
    loss: Annotated[ComponentPatch, OfKind("policy_losses")] = ComponentPatch()

    @model_validator(mode="before")
    @classmethod
    def _from_algorithm(cls, value: Any) -> Any:
        if isinstance(value, AlgorithmConfig) and not isinstance(value, cls):
            return {name: getattr(value, name) for name in value.model_fields_set}
        return value


class DomainConfig(Strict):
    """One kind of task: its data, its judge, its rewards."""

    data: Annotated[DataConfig, OfKind("sources", "dataset")]
    eval_data: Annotated[DataConfig, OfKind("sources", "dataset")] | None = None
    """Held-out rows; columns, template, system, examples and chat are taken from `data` where not given."""
    verifier: Annotated[ComponentRef, OfKind("verifiers")]
    rewards: tuple[Annotated[RewardRef, OfKind("rewards")], ...] = (RewardRef(use="verdict"),)
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
    sampling: SamplingConfig = SamplingConfig()
    max_draws: PositiveInt = 8
    """A step ends with an error after drawing `max_draws * batch.prompts` prompts without filling its batch."""
    early_stop: bool = False
    """Stop a group's running samples as soon as no outcome of theirs could get it through the filters. Verdicts are
    then awaited between decode steps, so that the stop does not depend on the clock."""


class ScoringConfig(Strict):
    """The pool of verifier processes."""

    workers: NonNegativeInt = 2
    """Worker processes; 0 verifies inside the driver, without a deadline that can be enforced."""
    timeout_s: Annotated[float, Field(gt=0)] = 10.0
    """Hard deadline of one verdict; the worker is killed and replaced."""
    alarm_rate: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Warn when more than this share of a step's rollouts stays without a score."""


class TrainConfig(Strict):
    """Training engine and optimiser."""

    strategy: Annotated[ComponentRef, OfKind("train_strategies", "local")] = ComponentRef(use="local")
    optim: OptimSettings = OptimSettings()


class EvalConfig(Strict):
    """Held-out evaluation inside training."""

    every: NonNegativeInt = 0
    """Steps between evaluations; 0 leaves only start and end."""
    at_start: bool = True
    at_end: bool = True
    samples: PositiveInt = 1
    """Sampled answers per prompt."""
    limit: PositiveInt | None = None
    """Prompts per domain; null takes all."""
    greedy: bool = True
    """Also decode greedily."""


class CheckpointConfig(Strict):
    """Full-state checkpoints under `<folder>/checkpoints`."""

    every: NonNegativeInt = 0
    """Steps between checkpoints; 0 writes only the last."""
    keep: PositiveInt = 2
    at_end: bool = True


class PluginsConfig(Strict):
    """Which plugins may take part."""

    blocked: tuple[str, ...] = ()
    required: tuple[str, ...] = ()
    rollfile: str | None = None
    """A Python file that is loaded as a plugin."""


class RunConfig(Strict):
    """One run."""

    name: str = "run"
    folder: str | None = None
    """Where the run is kept; null means `runs/<name>`."""
    seed: NonNegativeInt = 0
    steps: PositiveInt = 100
    strict: bool = False
    """Raise where an observer (tracker, hook) fails instead of logging and counting."""
    model: ModelConfig
    domains: Annotated[dict[str, DomainConfig], Field(min_length=1)]
    mixer: Annotated[ComponentRef, OfKind("mixers", "ratio")] = ComponentRef(use="ratio")
    algorithm: AlgorithmConfig = AlgorithmConfig()
    critic: CriticConfig = CriticConfig()
    filters: tuple[Annotated[ComponentRef, OfKind("filters")], ...] = ()
    batch: BatchConfig = BatchConfig()
    rollout: RolloutConfig = RolloutConfig()
    scoring: ScoringConfig = ScoringConfig()
    train: TrainConfig = TrainConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    trackers: tuple[Annotated[ComponentRef, OfKind("trackers")], ...] = (
        ComponentRef(use="console"),
        ComponentRef(use="jsonl"),
        ComponentRef(use="parquet"),
    )
    plugins: PluginsConfig = PluginsConfig()

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
