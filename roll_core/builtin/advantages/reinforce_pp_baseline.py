"""REINFORCE++ with a group baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from roll_core.numerics import whiten_array
from roll_core.types import AdvantageInputs, Advantages


@dataclass(frozen=True, slots=True)
class ReinforcePPBaseline:
    """Group-centred reward, whitened over the batch.

    A = whiten(R_i - mean_g) over all sampled tokens of the rollouts that share this estimator, so that long answers
    weigh more in the mean and the variance. The KL belongs into the loss (`kl: {estimator: k2}`).

    Source: Hu et al. 2025, arXiv:2501.03262.
    Deviates: a group of one gives 0 and stays out of the whitening; ddof 1 and eps 1e-8 as verl has it, OpenRLHF and
    NeMo-RL use ddof 0 and a floor in place of eps.
    """

    ddof: Literal[0, 1] = 1
    """1: sample variance; 0: population variance."""
    eps: Annotated[float, Field(ge=0)] = 1e-8
    """Added to the variance."""

    def __call__(self, inputs: AdvantageInputs) -> Advantages:
        """Compute advantages [N]."""
        rewards = inputs.totals().astype(np.float64)
        centred = (rewards - inputs.group_mean(rewards))[inputs.token_rollout]
        informed = (inputs.group_size() > 1)[inputs.token_rollout]
        return Advantages(whiten_array(centred, inputs.response_mask & informed, ddof=self.ddof, eps=self.eps))
