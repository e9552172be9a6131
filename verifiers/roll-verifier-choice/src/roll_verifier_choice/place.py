"""A stretch of text where an answer is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Where = Literal["boxed", "tag", "marker", "claim", "last_line", "opening"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where an answer is, and how it is introduced."""

    where: Where
    start: int
    """Where the place begins, its marker included."""
    begin: int
    """Where the answer begins."""
    end: int
    """Where the answer ends, at the latest."""
    denies: bool = False
    """Whether the answer is said to be wrong ("the wrong answer is B")."""

    @property
    def is_whole(self) -> bool:
        """Whether the stretch is the answer and nothing else."""
        return self.where not in ("marker", "claim", "opening")
