"""The same verifiers as reward functions of other trainers.

`trl_reward` for TRL's `reward_funcs`, `verl_score` for verl's `compute_score`, `rubric_reward` for the rubrics of
PrimeIntellect verifiers. None of these libraries is imported.
"""

from __future__ import annotations

from roll_core.adapters.primeintellect import rubric_reward
from roll_core.adapters.trl import trl_reward
from roll_core.adapters.verl import verl_score

__all__ = ["rubric_reward", "trl_reward", "verl_score"]
