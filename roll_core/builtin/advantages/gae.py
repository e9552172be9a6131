"""Generalised advantage estimation with a critic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from roll_core.errors import BackendError
from roll_core.numerics import generalised_advantages, whiten_array
from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class Gae:
    """Exponentially weighted temporal differences of the critic's values.

    delta_t = r_t + gamma V_{t+1} - V_t; A_t = delta_t + gamma lam A_{t+1}; returns = A + V (before whitening).

    Source: Schulman et al. 2015, arXiv:1506.02438, equations 16 and 17.
    Deviates: whitened over the sampled tokens of the rollouts that share this estimator, as verl always does (ddof 1,
    eps 1e-8); `whiten: false` is the paper's.
    """

    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    """Discount per step."""
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    """1: unbiased returns; 0: one-step differences."""
    gap: Literal["skip", "zero"] = "skip"
    """At tokens that were not sampled, between sampled ones: "skip" takes no step there (verl, AReaL, NeMo-RL);
    "zero" walks through them with value and reward 0 (OpenRLHF)."""
    whiten: bool = True
    """Whiten the advantages over the batch."""
    ddof: Literal[0, 1] = 1
    """Of the whitening: 1, sample variance; 0, population variance."""
    eps: Annotated[float, Field(ge=0)] = 1e-8
    """Of the whitening: added to the variance."""

    def requirements(self) -> frozenset[str]:
        """The critic's values."""
        return frozenset({"values"})

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N] and the critic's target returns [N].

        Raises:
            BackendError: there are no values.
        """
        if inputs.values is None:
            raise BackendError("gae needs the column 'values'; the train strategy did not compute it")
        advantages, returns = generalised_advantages(
            inputs, inputs.values, gamma=self.gamma, lam=self.lam, gap=self.gap
        )
        if self.whiten:
            advantages = whiten_array(advantages, inputs.response_mask, ddof=self.ddof, eps=self.eps)
        return Advantages(advantages, returns)
