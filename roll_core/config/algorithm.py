"""The sections about the algorithm: advantage and loss, divergence, correction, answers near the length limit."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from roll_core.config.base import ComponentRef, NonNegative, NonNegativeInt, PositiveInt, Strict
from roll_core.config.marks import OfKind

Aggregation = Literal["token-mean", "seq-mean-token-mean", "seq-mean-token-sum", "dr_grpo"]


class AdaptiveKL(Strict):
    """coef *= 1 + clip(kl / target - 1, -0.2, 0.2) * rollouts / horizon (Ziegler et al. 2019, arXiv:1909.08593)."""

    target: Annotated[float, Field(gt=0)]
    """The divergence to hold, in nats a token."""
    horizon: Annotated[float, Field(gt=0)] = 10_000.0
    """Rollouts over which the coefficient may grow by a fifth; larger is slower."""


class KLConfig(Strict):
    """Divergence from the reference model. With `coef: 0` no reference is loaded."""

    coef: NonNegative = 0.0
    """Weight of the divergence (kl_coef)."""
    where: Literal["loss", "reward"] = "loss"
    """A term of the objective, or a negative reward at every token."""
    estimator: Literal["k1", "k2", "k3", "unbiased"] = "unbiased"
    """k1, k2, k3 as Schulman names them; `unbiased` is w * k3 with w = pi / sg[pi] (in a reward: k1)."""
    adaptive: AdaptiveKL | None = None
    """Steer the coefficient towards a target; null keeps it fixed."""


class CorrectionConfig(Strict):
    """Weights for the gap between trainer and sampler, w = exp(old_logprobs - rollout_logprobs), detached."""

    kind: Literal["none", "token_tis", "token_mask", "seq_tis", "seq_mask", "geo_mask"] = "none"
    """`tis` truncates the weight at `high`, `mask` drops what lies outside [low, high]; per token, per sequence, or by
    the geometric mean of a sequence."""
    low: NonNegative = 0.0
    """Lower bound (masks only)."""
    high: Annotated[float, Field(gt=0)] = 2.0
    """Upper bound."""


class OverlongConfig(Strict):
    """Answers that hit the length limit: DAPO's soft penalty (arXiv:2503.14476), or out of the loss."""

    buffer: NonNegativeInt = 0
    """The penalty grows linearly over the last `buffer` tokens before `max_new_tokens`; 0 switches it off."""
    penalty: NonNegative = 1.0
    """The penalty at the limit."""
    mask: bool = False
    """Leave truncated answers out of the loss (they stay in the group's statistics)."""


class AlgorithmConfig(Strict):
    """Any advantage estimator with any loss."""

    advantage: Annotated[ComponentRef, OfKind("advantages", "grpo")] = ComponentRef(use="grpo")
    """Rewards to credit for every sampled token."""
    loss: Annotated[ComponentRef, OfKind("policy_losses", "ppo_clip")] = ComponentRef(use="ppo_clip")
    """Credit to a loss for every sampled token."""
    agg: Aggregation = "token-mean"
    """How losses of tokens are averaged over a mini-batch."""
    agg_length: PositiveInt | None = None
    """The constant length of `agg: dr_grpo`; null takes `max_new_tokens`."""
    kl: KLConfig = KLConfig()
    """Divergence from the reference model."""
    entropy_coef: float = 0.0
    """Weight of the entropy bonus; 0 computes no entropy."""
    correction: CorrectionConfig = CorrectionConfig()
    """Weights for the gap between trainer and sampler."""
    overlong: OverlongConfig = OverlongConfig()
    """What happens to answers near the length limit."""


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
