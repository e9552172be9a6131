"""Scoring: the verifier pool, the composition of rewards, and what is reported about both."""

from roll_core.scoring.compose import RewardComponent
from roll_core.scoring.pool import VerdictPool, VerifierPool
from roll_core.scoring.scorer import DomainScoring, Scorer
from roll_core.scoring.serve import VerifierSpec

__all__ = ["DomainScoring", "RewardComponent", "Scorer", "VerdictPool", "VerifierPool", "VerifierSpec"]
