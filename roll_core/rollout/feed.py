"""What the engine asks of a scheduler, whether it runs ahead of training or not."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from roll_core.rollout.collected import StepRollouts


class Feed(Protocol):
    """Gives the engine the groups of each step, and hears of updates and new weights."""

    @property
    def is_ahead(self) -> bool:
        """Whether rollouts go on while the policy is trained."""
        ...

    async def collect(self, step: int, count: int) -> StepRollouts:
        """The groups of `step`; empty when the data have ended."""
        ...

    def updating(self, step: int, *, is_last: bool) -> None:
        """The update of `step` begins."""
        ...

    async def settle(self) -> None:
        """New weights are ready: returns when they may be taken over."""
        ...

    def advance(self, version: int) -> None:
        """The backend generates with weights of `version` from now on."""
        ...

    async def freeze(self) -> None:
        """Halt, so that what is pending can be written."""
        ...

    def thaw(self) -> None:
        """Go on."""
        ...

    def write(self, folder: Path) -> None:
        """Write what was rolled out and is not trained yet into an empty folder."""
        ...

    def read(self, folder: Path | None) -> None:
        """Take up what `write` wrote (None: nothing was), before the run starts."""
        ...

    def counts(self) -> dict[str, int]:
        """Groups "open" (rolled out or scored now), "finished" and untrained, "dropped" so far; "requests" running.

        Safe from any thread.
        """
        ...

    async def close(self) -> None:
        """Give up whatever is under way."""
        ...
