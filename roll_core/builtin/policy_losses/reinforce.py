"""The score-function estimator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from roll_core.contracts import LossInputs


@dataclass(frozen=True, slots=True)
class ReinforceLoss:
    """Plain policy gradient.

    l_t = -A_t log pi_t

    Source: Williams 1992, https://doi.org/10.1007/BF00992696.
    Deviates: none. Correct for one update per batch; nothing holds the policy back in later ones.
    """

    def __call__(self, inputs: LossInputs) -> Tensor:
        """Compute the loss per token [n]."""
        return -inputs.advantages * inputs.logprobs
