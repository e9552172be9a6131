"""Checks of `contracts.PolicyLoss`, in float64 on the CPU."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from roll_core.contracts import LossInputs, requirements_of
from roll_core.testing.cases import PolicyLossCases
from roll_core.testing.inputs import make_loss_inputs
from roll_core.testing.kit import CheckFailed, CheckSkipped, Subject, check
from roll_core.testing.snapshot import snapshot

if TYPE_CHECKING:
    from torch import Tensor

_TOLERANCE = 2e-3
_STEP = 1e-4
_FIELDS = {"logprobs", "old_logprobs", "rollout_logprobs", "advantages", "entropy", "full_logprobs", "ref_logprobs"}
_FIELDS |= {"values", "old_values", "returns"}


def _inputs(loss: Any, **how: Any) -> LossInputs:
    return make_loss_inputs(columns=sorted(requirements_of(loss) - _FIELDS), **how)


def _values(loss: Any, inputs: LossInputs) -> Tensor:
    import torch

    values = loss(inputs)
    if not isinstance(values, torch.Tensor) or values.shape != inputs.logprobs.shape:
        shape = tuple(getattr(values, "shape", ())) or type(values).__name__
        raise CheckFailed(f"returned {shape}: return one value per token, shape {tuple(inputs.logprobs.shape)}")
    return values


def _total(loss: Any, inputs: LossInputs, weights: Tensor | None = None) -> Tensor:
    weights = inputs.mask.to(inputs.logprobs.dtype) if weights is None else weights
    return (_values(loss, inputs) * weights).sum()


def _gradient(loss: Any, inputs: LossInputs, weights: Tensor | None = None) -> Tensor:
    import torch

    total = _total(loss, inputs, weights)
    if not total.requires_grad:
        raise CheckFailed("the result does not depend on inputs.logprobs: it would train nothing")
    (gradient,) = torch.autograd.grad(total, inputs.logprobs)
    return gradient


@check("policy_losses", needs=("torch",))
def gives_one_value_per_token(subject: Subject) -> None:
    """The result is a tensor [n] that carries a gradient."""
    loss = subject.build()
    _gradient(loss, _inputs(loss))


@check("policy_losses", needs=("torch",))
def matches_finite_differences(subject: Subject) -> None:
    """The gradient is the slope of the value, with detached factors held fixed."""
    from roll_core.testing.frozen import slopes

    loss = subject.build()
    for seed in range(3):
        inputs = _inputs(loss, seed=seed)
        gradient = _gradient(loss, inputs)
        left, right = slopes(partial(_moved, loss, inputs), inputs.logprobs, _STEP)
        low, high = left.minimum(right) - _TOLERANCE, left.maximum(right) + _TOLERANCE
        if ((gradient < low) | (gradient > high)).any():
            at = int(((gradient - low).minimum(high - gradient)).argmin())
            raise CheckFailed(
                f"d loss / d logprobs[{at}] is {float(gradient[at]):.5f}, finite differences give "
                f"{float(left[at]):.5f} from the left and {float(right[at]):.5f} from the right"
            )


def _moved(loss: Any, inputs: LossInputs, logprobs: Tensor) -> Tensor:
    return _total(loss, replace(inputs, logprobs=logprobs, metrics={}))


@check("policy_losses", needs=("torch",))
def ignores_masked_tokens(subject: Subject) -> None:
    """Tokens off the loss mask get no gradient and do not change the others."""
    import torch

    loss = subject.build()
    inputs = _inputs(loss)
    gradient = _gradient(loss, inputs)
    if (gradient[~inputs.mask] != 0).any():
        raise CheckFailed("a masked token has a gradient: sum and average through inputs.segment_sum / segment_mean")
    noise = torch.where(inputs.mask, 0.0, -1.7).to(inputs.logprobs)
    moved = replace(inputs, logprobs=(inputs.logprobs.detach() + noise).requires_grad_(), metrics={})
    if not torch.allclose(_gradient(loss, moved)[inputs.mask], gradient[inputs.mask], atol=1e-9):
        raise CheckFailed("the log-prob of a masked token changes the gradient of others: mask before reducing")


@check("policy_losses", needs=("torch",))
def is_reinforce_at_ratio_one(subject: Subject) -> None:
    """Where all log-probs agree the gradient is -A (unless `is_reinforce_at_one` is False)."""
    loss = subject.build()
    stated = subject.cases.is_reinforce_at_one if isinstance(subject.cases, PolicyLossCases) else None
    if not (getattr(loss, "is_reinforce_at_one", True) if stated is None else stated):
        raise CheckSkipped("it declares is_reinforce_at_one = False")
    inputs = _inputs(loss, log_ratio=0.0)
    gradient, expected = _gradient(loss, inputs), -inputs.advantages * inputs.mask
    worst = float((gradient - expected)[inputs.mask].abs().max())
    if worst > _TOLERANCE:
        raise CheckFailed(
            f"at ratio 1 the gradient is off -A by up to {worst:.4f}: check sign and scale, or declare "
            "is_reinforce_at_one = False on the class"
        )


@check("policy_losses", needs=("torch",))
def adds_up_over_micro_batches(subject: Subject) -> None:
    """The gradients of whole-segment micro-batches add up to that of the full batch."""
    import torch

    loss = subject.build()
    inputs = _inputs(loss, lengths=(3, 5, 2, 4))
    full = _gradient(loss, inputs)
    for cut in (1, 2, 3):
        parts = [_gradient(loss, _part(inputs, low, high)) for low, high in ((0, cut), (cut, inputs.n_segments))]
        if not torch.allclose(torch.cat(parts), full, atol=1e-5):
            raise CheckFailed(
                f"segments 0:{cut} and {cut}: apart give another gradient than together: nothing may be averaged "
                "over the micro-batch; return plain values per token"
            )


@check("policy_losses", needs=("torch",))
def is_finite_at_extreme_ratios(subject: Subject) -> None:
    """Values and gradients are finite for log-ratios up to +-1000."""
    import torch

    loss = subject.build()
    for size in (5.0, 50.0, 1000.0):
        for log_ratio in (size, -size):
            for advantages in ((1.0, 1.0, 1.0), (-1.0, -1.0, -1.0)):
                inputs = _extreme(_inputs(loss, log_ratio=0.0, advantages=advantages), log_ratio)
                values, gradient = _values(loss, inputs).detach(), _gradient(loss, inputs)
                if not (torch.isfinite(values).all() and torch.isfinite(gradient).all()):
                    raise CheckFailed(
                        f"a log-ratio of {log_ratio:g} with advantage {advantages[0]:g} gives NaN or infinity: clamp "
                        "log-ratios (say, to +-20) before exp"
                    )


@check("policy_losses", needs=("torch",))
def leaves_its_input_alone(subject: Subject) -> None:
    """The tensors it is given are not changed."""
    loss = subject.build()
    inputs = _inputs(loss)
    before = snapshot(replace(inputs, metrics={}))
    _values(loss, inputs)
    if snapshot(replace(inputs, metrics={})) != before:
        raise CheckFailed("its input tensors were changed: no in-place operations on them")


def _part(inputs: LossInputs, low: int, high: int) -> LossInputs:
    """Segments `low:high` of `inputs`."""
    import torch

    rows = (inputs.segment_ids >= low) & (inputs.segment_ids < high)

    def cut(value: Any) -> Any:
        return value[rows] if isinstance(value, torch.Tensor) else value

    changes = {name: cut(getattr(inputs, name)) for name in (*_FIELDS - {"logprobs"}, "mask")}
    changes["logprobs"] = inputs.logprobs.detach()[rows].requires_grad_()
    changes["segment_ids"] = inputs.segment_ids[rows] - low
    changes["columns"] = {name: cut(value) for name, value in inputs.columns.items()}
    return replace(inputs, n_segments=high - low, metrics={}, **changes)


def _extreme(inputs: LossInputs, log_ratio: float) -> LossInputs:
    """`inputs` with `logprobs - old_logprobs = log_ratio`, every log-prob at most 0."""
    high, low = inputs.old_logprobs, inputs.old_logprobs - abs(log_ratio)
    new, old = (high, low) if log_ratio > 0 else (low, high)
    return replace(
        inputs, logprobs=new.clone().requires_grad_(), full_logprobs=new.clone(), old_logprobs=old, rollout_logprobs=old
    )
