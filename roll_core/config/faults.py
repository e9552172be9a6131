"""The `faults` section: what a run does by itself when it loses a process or nothing moves any more."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from roll_core.config.base import NonNegative, NonNegativeInt, Strict


class FaultsConfig(Strict):
    """What a run does when it loses a process or stands still.

    Replicas and verifiers are replaced in place, whatever is said here. What a run cannot go on without (a training
    rank, every replica, the driver) sends it back to its newest checkpoint.
    """

    restarts: NonNegativeInt = 3
    """How often in a row a run goes on from its newest checkpoint by itself, without a committed step in between; 0
    stops at the first loss."""
    wait_s: NonNegative = 2.0
    """Seconds before the first restart; they double with each further one in a row, up to a minute."""
    supervise: bool = False
    """Whether `roll train` and `roll resume` watch over the run from a process of their own, and resume it when the
    driver itself is killed."""
    stage_timeout_s: Annotated[float, Field(gt=0)] = 3600.0
    """Longest that one stage of a step (rollout, update, evaluation, checkpoint ...) may take in seconds; beyond it
    the run says who waits for whom, with stacks, and counts as lost."""
