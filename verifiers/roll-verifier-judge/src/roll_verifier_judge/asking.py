"""Clients: what a judge is asked through, and what can go wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from roll_verifier_judge.options import Sampling
from roll_verifier_judge.prompt import Message


class JudgeError(Exception):
    """The judge could not be asked; `detail` is the word for the verdict."""

    detail = "judge_unreachable"


class JudgeUnreachableError(JudgeError):
    """No answer, or only failures that may pass, after all tries."""


class JudgeRejectedError(JudgeError):
    """The request was turned down for good (wrong key, unknown model, malformed request)."""

    detail = "judge_rejected"


class StructuredRefusedError(JudgeError):
    """The endpoint does not take a response format; ask again without."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A judge's reply and why it ended."""

    text: str
    finish: Literal["stop", "length", "refusal"] = "stop"


class Client(Protocol):
    """A language model that answers chat requests."""

    @property
    def is_structured(self) -> bool:
        """Whether it is asked for JSON of a schema."""
        ...

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, schema: Mapping[str, Any] | None
    ) -> Reply:
        """Answer one request.

        Raises:
            JudgeError: it cannot.
        """
        ...

    async def close(self) -> None:
        """Free what is held; a later request starts anew."""
        ...
