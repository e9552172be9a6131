"""What a verifier finds."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Self


class Status(StrEnum):
    """Whose doing the outcome is. The policy's doing is always scored; the machinery's never is."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    """Wrong, partly right (0 <= score < 1), crashed, looped or over its limits."""
    INVALID = "invalid"
    """No usable answer was given: score 0."""
    UNDECIDED = "undecided"
    """The verifier could not tell, and not because of the answer's size. No score."""
    ERROR = "error"
    """Verifier, judge, sandbox, environment or reference is broken. No score."""
    ABSTAIN = "abstain"
    """The verifier does not apply to this prompt. No score."""

    @property
    def is_scored(self) -> bool:
        """Whether a verdict of this status carries a score."""
        return self in _SCORED


_SCORED = frozenset({Status.CORRECT, Status.INCORRECT, Status.INVALID})


@dataclass(frozen=True, slots=True)
class Verdict:
    """One verifier's finding about one response.

    Build it through `correct`, `incorrect`, `invalid`, `undecided`, `error` and `abstain`; a score that is NaN,
    infinite, outside [0, 1] or at odds with the status raises `ValueError`.
    """

    status: Status
    score: float | None = None
    answer: str | None = None
    """The answer that was extracted from the response, if any."""
    detail: str = ""
    """A short machine-readable word about how the verdict came about ("exact", "too_costly", "timeout")."""
    reason: str = ""
    """A sentence for people."""
    seconds: float = 0.0
    verifier: str = ""
    version: str = ""

    def __post_init__(self) -> None:
        if not self.status.is_scored:
            if self.score is not None:
                raise ValueError(f"a verdict with status '{self.status}' carries no score, got {self.score!r}")
            return
        if self.score is None or not math.isfinite(self.score) or not 0.0 <= self.score <= 1.0:
            raise ValueError(f"a verdict with status '{self.status}' needs a score in [0, 1], got {self.score!r}")
        if self.status is Status.INVALID and self.score != 0.0:
            raise ValueError(f"an invalid answer scores 0, got {self.score!r}")
        if self.status is Status.INCORRECT and self.score >= 1.0:
            raise ValueError("an incorrect answer scores below 1")

    @classmethod
    def correct(cls, answer: str | None = None, *, score: float = 1.0, detail: str = "", reason: str = "") -> Self:
        """The answer is right."""
        return cls(Status.CORRECT, score, answer, detail, reason)

    @classmethod
    def incorrect(cls, answer: str | None = None, *, score: float = 0.0, detail: str = "", reason: str = "") -> Self:
        """The answer is wrong, or partly right with `score` below 1."""
        return cls(Status.INCORRECT, score, answer, detail, reason)

    @classmethod
    def invalid(cls, reason: str = "", *, answer: str | None = None, detail: str = "") -> Self:
        """No usable answer."""
        return cls(Status.INVALID, 0.0, answer, detail, reason)

    @classmethod
    def undecided(cls, reason: str, *, answer: str | None = None, detail: str = "") -> Self:
        """Could not tell; leaves the statistics."""
        return cls(Status.UNDECIDED, None, answer, detail, reason)

    @classmethod
    def error(cls, reason: str, *, detail: str = "") -> Self:
        """The machinery failed; leaves the statistics."""
        return cls(Status.ERROR, None, None, detail, reason)

    @classmethod
    def abstain(cls, reason: str = "", *, detail: str = "") -> Self:
        """Not applicable; leaves the statistics."""
        return cls(Status.ABSTAIN, None, None, detail, reason)

    def stamped(self, *, verifier: str, version: str, seconds: float) -> Verdict:
        """Return a copy that names its verifier, the verifier's version, and the time taken in seconds."""
        return replace(self, verifier=verifier, version=version, seconds=seconds)
