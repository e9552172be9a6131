"""What is asked, and the draw of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Message = Mapping[str, Any]
"""One chat message: `role`, `content`, and whatever a chat template understands."""


@dataclass(frozen=True, slots=True)
class MediaRef:
    """A picture, sound or film by content hash; the bytes live in a store."""

    sha256: str
    mime: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One task, immutable. Either `messages` (chat) or `text` (raw continuation) or `token_ids` says what is asked."""

    id: str
    domain: str
    messages: tuple[Message, ...] = ()
    text: str | None = None
    token_ids: tuple[int, ...] | None = None
    reference: Any = None
    info: Mapping[str, Any] = field(default_factory=dict)
    media: tuple[MediaRef, ...] = ()


@dataclass(frozen=True, slots=True)
class Ticket:
    """One draw of one prompt. Tickets are numbered in the order of the draw, over the whole run."""

    id: int
    domain: str
    prompt_id: str
    position: int = 0
    """Position in the domain's shuffled stream (counts on over epochs)."""
