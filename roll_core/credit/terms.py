"""The functions that terms of the objective call on every micro-batch. Plain objects, so that they reach any rank.

torch is imported where they run, not where they are built.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from roll_core.errors import BackendError, ComponentError

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs

_OUTSIDE = (0.5, 5.0)


@dataclass(frozen=True)
class PolicyTerm:
    """A policy loss, its mean as a metric, and the mismatch of trainer and sampler where nobody measured it before."""

    loss: Any
    label: str
    """Name of the loss, for errors."""
    measure_mismatch: bool

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n].

        Raises:
            ComponentError: the loss returned something else than one value per token.
        """
        try:
            values: Tensor = self.loss(inputs)
        except Exception as error:
            error.add_note(f"raised by policy loss '{self.label}'")
            raise
        if getattr(values, "shape", None) != inputs.logprobs.shape:
            raise ComponentError(
                f"policy loss '{self.label}' returned {_shape(values)}, expected one value per token: "
                f"{_shape(inputs.logprobs)}"
            )
        inputs.metric("policy/loss", values)
        if self.measure_mismatch:
            report_mismatch(inputs, "")
        return values


@dataclass(frozen=True)
class MismatchProbe:
    """Reports one domain's mismatch of trainer and sampler; adds nothing to the objective."""

    domain: str

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute zeros [n] that hang on the log-probs, so that a term alone can be differentiated."""
        report_mismatch(inputs, f"/{self.domain}")
        return inputs.logprobs.clamp(-1.0, 0.0) * 0.0


@dataclass(frozen=True)
class KLTerm:
    """KL to the reference, per token; `policy/kl` reports k3 whatever the estimator, since it varies least."""

    estimator: Literal["k1", "k2", "k3", "unbiased"]
    full: bool
    """Whether to take log-probs over the whole vocabulary, since sampling cuts it and the reference's are not cut."""
    domain: str | None
    """The domain that `policy/kl/<domain>` is reported for."""

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the estimate per token [n].

        Raises:
            BackendError: the strategy gave no reference or full log-probs.
        """
        from roll_core.numerics import kl_estimate

        logprobs = inputs.full_logprobs if self.full else inputs.logprobs
        if logprobs is None or inputs.ref_logprobs is None:
            missing = "full_logprobs" if logprobs is None else "ref_logprobs"
            raise BackendError(f"the KL term needs '{missing}', which the train strategy did not give")
        measured = kl_estimate(logprobs.detach(), inputs.ref_logprobs, "k3")
        inputs.metric("policy/kl", measured)
        if self.domain is not None:
            inputs.metric(f"policy/kl/{self.domain}", measured)
        return kl_estimate(logprobs, inputs.ref_logprobs, self.estimator)


@dataclass(frozen=True)
class EntropyTerm:
    """Minus the entropy: a positive coefficient keeps the policy spread out."""

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute -H per token [n].

        Raises:
            BackendError: the strategy gave no entropy.
        """
        if inputs.entropy is None:
            raise BackendError("the entropy term needs 'entropy', which the train strategy did not give")
        inputs.metric("policy/entropy", inputs.entropy)
        return -inputs.entropy


@dataclass(frozen=True)
class ValueTerm:
    """The critic's squared error against the returns."""

    clip: float

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n].

        Raises:
            BackendError: the strategy gave no values, old values or returns.
        """
        from roll_core.numerics import value_loss

        if inputs.values is None or inputs.old_values is None or inputs.returns is None:
            raise BackendError("the value term needs 'values', 'old_values' and 'returns' from the train strategy")
        loss = value_loss(inputs.values, inputs.old_values, inputs.returns, clip=self.clip)
        inputs.metric("train/value_loss", loss)
        if self.clip > 0:
            inputs.metric("train/value_clip_fraction", (inputs.values - inputs.old_values).abs() > self.clip)
        return loss


def report_mismatch(inputs: LossInputs, suffix: str) -> None:
    """Report what can be summed over micro-batches: mean |log w|, KL(sampler || trainer), share outside [0.5, 5]."""
    import torch

    from roll_core.numerics import log_ratio

    log_w = log_ratio(inputs.old_logprobs, inputs.rollout_logprobs)
    weights = torch.exp(log_w)
    low, high = _OUTSIDE
    inputs.metric(f"policy/mismatch_abs{suffix}", log_w.abs())
    inputs.metric(f"policy/mismatch_k3{suffix}", torch.expm1(log_w) - log_w)
    inputs.metric(f"policy/mismatch_outside{suffix}", (weights < low) | (weights > high))


def _shape(value: Any) -> str:
    shape = getattr(value, "shape", None)
    return f"shape {tuple(shape)}" if shape is not None else f"a {type(value).__name__}"
